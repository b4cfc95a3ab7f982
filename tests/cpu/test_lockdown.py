"""A locked rank: no peer's memory, no signals, no files but its own, no rights; and yet all that a candidate needs."""

import array
import contextlib
import ctypes
import errno
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forked import error_of, in_child, in_namespaces, peer, status_field

from pkb.rank.isolation import capabilities, landlock, lockdown, reach, seccomp

LIBC = ctypes.CDLL(None, use_errno=True)
DENIED = {errno.EPERM, errno.EACCES}


def lock(writable: Path, **options: Any) -> dict[str, str]:
    return lockdown.lock_down(
        readable=reach.default_readable(), writable=[writable], forbidden=[reach.own_package()], **options
    )


@pytest.fixture(scope="module", autouse=True)
def _landlock() -> None:
    try:
        landlock.version()
    except OSError as error:
        pytest.skip(f"this kernel has no Landlock: {error}")


def calling(name: str, *arguments: Any) -> Callable[[], None]:
    """A C library function as something that raises `OSError`."""

    def call() -> None:
        function = getattr(LIBC, name)
        function.restype = ctypes.c_long
        if function(*arguments) == -1:
            raise OSError(ctypes.get_errno(), name)

    return call


def attacks(pid: int, address: int, descriptor: int) -> dict[str, int]:
    """Each way to a peer's data with the errno it met, 0 where it got through."""
    buffer = ctypes.create_string_buffer(6)

    def memory() -> None:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
            file.seek(address)
            assert file.read(6) == b"secret"

    class Vector(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    here, there = Vector(ctypes.addressof(buffer), 6), Vector(address, 6)
    pidfd = os.pidfd_open(pid)
    found = {
        "mem": error_of(memory),
        "fd": error_of(lambda: os.close(os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDONLY))),
        "environ": error_of(Path(f"/proc/{pid}/environ").read_bytes),
        "maps": error_of(Path(f"/proc/{pid}/maps").read_bytes),
        "process_vm_readv": error_of(
            calling("process_vm_readv", pid, ctypes.byref(here), 1, ctypes.byref(there), 1, ctypes.c_ulong(0))
        ),
        "pidfd_getfd": error_of(calling("syscall", ctypes.c_long(438), pidfd, descriptor, 0)),
        "signal": error_of(lambda: os.kill(pid, signal.SIGCONT)),
        "ptrace": error_of(calling("ptrace", 0x4206, pid, None, None)),  # PTRACE_SEIZE: does not stop it
    }
    os.close(pidfd)
    return found


@pytest.mark.parametrize("walls", ["none", "all", "without seccomp", "without capabilities dropped"])
def test_siblings_cannot_reach_each_other(walls: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each wall must hold by itself: the system call filter would hide a Landlock that does nothing.
    if walls == "without seccomp":
        monkeypatch.setattr(seccomp, "install", lambda: "off: by the test")
    if walls == "without capabilities dropped":
        monkeypatch.setattr(capabilities, "drop", lambda: "off: by the test")
    secret = ctypes.create_string_buffer(b"secret")
    descriptor = os.memfd_create("secret")

    def locked() -> None:
        if walls != "none":
            lock(tmp_path)

    def attack(victim: int) -> dict[str, int]:
        locked()
        return attacks(victim, ctypes.addressof(secret), descriptor)

    def family() -> dict[str, int]:
        with peer(locked) as victim:
            return in_child(lambda: attack(victim))

    found = in_child(family)
    os.close(descriptor)
    if walls == "none":
        assert set(found.values()) == {0}, f"the attacks themselves do not work: {found}"
    else:
        if landlock.version() < 6:
            del found["signal"]
        if walls == "without capabilities dropped":
            # CAP_PERFMON opens these two, whatever Landlock says; neither holds data.
            found = {name: code for name, code in found.items() if name not in ("environ", "maps")}
        assert all(code in DENIED for code in found.values()), found


def test_a_rank_cannot_signal_its_parent_but_its_children(tmp_path: Path) -> None:
    if landlock.version() < 6:
        pytest.skip("signals need Landlock 6")

    def rank() -> tuple[int, int]:
        lock(tmp_path)
        with peer(lambda: None) as child:
            return error_of(lambda: os.kill(os.getppid(), 0)), error_of(lambda: os.kill(child, 0))

    assert in_child(rank) == (errno.EPERM, 0)


def test_sharing_that_was_agreed_on_goes_on_working(tmp_path: Path) -> None:
    def rank(end: socket.socket, shared: mmap.mmap, index: int) -> tuple[bytes, bytes, bytes]:
        lock(tmp_path)
        shared[index] = 65 + index
        (tmp_path / f"file{index}").write_bytes(b"file")
        mine = os.memfd_create("mine")
        os.write(mine, f"rank {index}".encode())
        end.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [mine]))])
        _, ancillary, _, _ = end.recvmsg(1, socket.CMSG_SPACE(4))
        theirs = array.array("i", ancillary[0][2])[0]
        with open(tmp_path / f"file{1 - index}", "r+b") as file, mmap.mmap(file.fileno(), 4) as mapped:
            return os.pread(theirs, 16, 0), shared[:2], mapped[:]

    def family() -> Any:
        shared = mmap.mmap(-1, 4096)
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        first = os.fork()
        if first == 0:
            with contextlib.suppress(BaseException):
                rank(left, shared, 0)
            os._exit(0)
        answer = in_child(lambda: rank(right, shared, 1))
        os.waitpid(first, 0)
        return answer

    assert in_child(family) == (b"rank 0", b"AB", b"file")


def test_files_are_reached_by_permission_only(tmp_path: Path) -> None:
    writable, readable, outside = (tmp_path / name for name in ("writable", "readable", "outside"))
    for folder in (writable, readable, outside):
        folder.mkdir()
        (folder / "file").write_text("text")

    def rank() -> dict[str, int]:
        lockdown.lock_down(readable=[*reach.default_readable(), readable], writable=[writable], max_file_bytes=1 << 20)
        return {
            "write": error_of(lambda: (writable / "new").write_text("x")),
            "read": error_of((readable / "file").read_text),
            "too large": error_of(lambda: (writable / "large").write_bytes(bytes(2 << 20))),
            "null": error_of(lambda: Path("/dev/null").write_text("x")),
            "change readable": error_of(lambda: (readable / "file").write_text("x")),
            "truncate readable": error_of(lambda: os.truncate(readable / "file", 0)),
            "read outside": error_of((outside / "file").read_text),
            "write outside": error_of(lambda: (outside / "new").write_text("x")),
            "list outside": error_of(lambda: list(outside.iterdir())),
            "link in": error_of(lambda: os.link(outside / "file", writable / "linked")),
            "system": error_of(lambda: Path("/etc/pkb-test").write_text("x")),
            "sysctl": error_of(lambda: Path("/proc/sys/kernel/hostname").write_text("x")),
        }

    found = in_child(rank)
    assert [found.pop(name) for name in ("write", "read", "null", "too large")] == [0, 0, 0, errno.EFBIG]
    assert all(code in DENIED | {errno.EXDEV} for code in found.values()), found
    disks = [node for node in Path("/dev").iterdir() if node.is_block_device()]
    assert not set(disks) & set(reach.device_nodes()), "a raw disk holds every file"


def test_a_rank_may_name_its_own_threads_as_cuda_does(tmp_path: Path) -> None:
    def rank() -> tuple[int, int]:
        lock(tmp_path)
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        newest = max(int(entry.name) for entry in Path("/proc/self/task").iterdir())
        with peer(lambda: None) as child:
            other = error_of(lambda: Path(f"/proc/{child}/task/{child}/comm").write_text("x"))
        return error_of(lambda: Path(f"/proc/self/task/{newest}/comm").write_text("cuda-Evt")), other

    assert in_child(rank) == (0, errno.EACCES)


def test_rights_are_gone_for_good(tmp_path: Path) -> None:
    def rank() -> dict[str, Any]:
        report = lock(tmp_path)
        shell = subprocess.run(["sh", "-c", "grep Cap /proc/self/status"], capture_output=True, text=True, check=True)
        return {
            "report": report,
            "after exec": {line.split()[1] for line in shell.stdout.splitlines() if "Bnd" not in line},
            "bounding": status_field("CapBnd"),
            "nnp": status_field("NoNewPrivs"),
            "seccomp": status_field("Seccomp"),
            "core": resource.getrlimit(resource.RLIMIT_CORE),
            "mount": error_of(calling("mount", b"none", str(tmp_path).encode(), b"tmpfs", 0, None)),
            "unshare": error_of(calling("unshare", 0x10000000)),
            "clone": error_of(calling("syscall", ctypes.c_long(56), ctypes.c_ulong(0x10000000 | 17), 0, 0, 0, 0)),
            "prlimit": error_of(lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CPU)),
            "own limit": error_of(lambda: resource.prlimit(0, resource.RLIMIT_CPU)),
        }

    found = in_child(rank)
    assert all(words.startswith("on") for words in found["report"].values()) or os.getuid() != 0, found["report"]
    assert found["after exec"] == {"0000000000000000"}
    if os.getuid() == 0:
        assert int(found["bounding"], 16) == 0
    assert (found["nnp"], found["seccomp"], found["core"]) == ("1", "2", (1, 1))
    assert {found[name] for name in ("mount", "unshare", "prlimit")} == {errno.EPERM}
    if os.uname().machine == "x86_64":
        assert found["clone"] == errno.EPERM
    assert found["own limit"] == 0


def test_forbidden_folders_are_cut_out_of_readable_ones(tmp_path: Path) -> None:
    site = tmp_path / "venv" / "lib" / "site"
    for folder in ("torch", "pkb/rank", "pkb/problems"):
        (site / folder).mkdir(parents=True)
        (site / folder / "code.py").write_text("x = 1")
    (site / "pkb" / "__init__.py").write_text("")
    (tmp_path / "venv" / "lib64").symlink_to("lib")  # the way around
    (site / "alias").symlink_to("pkb/problems")

    def rank() -> dict[str, int]:
        lockdown.lock_down(
            readable=[
                *reach.default_readable(),
                tmp_path / "venv",
                site / "pkb" / "rank",
                site / "pkb" / "__init__.py",
            ],
            forbidden=[site / "pkb"],
            writable=[],
        )
        ways = ("torch/code.py", "pkb/rank/code.py", "pkb/__init__.py", "pkb/problems/code.py", "alias/code.py")
        found = {way: error_of((site / way).read_text) for way in ways}
        found["lib64"] = error_of((tmp_path / "venv/lib64/site/pkb/problems/code.py").read_text)
        found["list site"] = error_of(lambda: list(site.iterdir()))
        return found

    found = in_child(rank)
    assert list(found.values()) == [0, 0, 0, errno.EACCES, errno.EACCES, errno.EACCES, 0], found
    with pytest.raises(ValueError, match="lies in writable"):
        lockdown.lock_down(readable=[], writable=[tmp_path], forbidden=[site])


def test_threads_that_stay_outside_are_reported(tmp_path: Path) -> None:
    def rank() -> dict[str, str]:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        return lock(tmp_path)

    assert in_child(rank)["threads"].startswith("off: 1 thread")


def test_the_filter_is_well_formed_for_both_architectures() -> None:
    for machine in ("x86_64", "aarch64"):
        program = seccomp.assemble(machine)
        assert len(program) % 8 == 0
        assert len(program) // 8 < 4096
    with pytest.raises(OSError, match="riscv64"):
        seccomp.assemble("riscv64")


CANDIDATE = """
import ctypes, os, subprocess, sys
from pathlib import Path
from pkb.rank.isolation import lockdown
from pkb.rank.isolation import reach

def rank(index, port, folder):
    report = lockdown.lock_down(
        readable=reach.default_readable(), writable=[folder], forbidden=[reach.own_package()], max_file_bytes=1 << 30)
    assert report["threads"] == "on: one", report
    import torch, triton, torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=index, world_size=2)
    tensor = torch.full((4,), float(index + 1))
    dist.all_reduce(tensor)
    assert tensor.tolist() == [3.0] * 4
    if index == 0:
        source = folder / "k.cpp"
        source.write_text('extern "C" int answer() { return 42; }')
        subprocess.run(["g++", "-shared", "-fPIC", "-o", str(folder / "k.so"), str(source)], check=True)
        assert ctypes.CDLL(str(folder / "k.so")).answer() == 42
        from multiprocessing import shared_memory
        block = shared_memory.SharedMemory(create=True, size=1 << 20)
        block.buf[0] = 7
        again = shared_memory.SharedMemory(block.name)
        assert again.buf[0] == 7
        block.unlink()
        import pkb.rank.isolation.lockdown, pkb.types.cost
        try:
            import pkb.problems.registry
        except (ImportError, PermissionError):
            say("problems out of reach")
    dist.barrier()
    dist.destroy_process_group()
    say(f"rank {index} done")

def say(line):
    os.write(1, line.encode() + b"\\n")  # in one piece, whatever Python buffers

folder = Path(os.environ["TMPDIR"])
ranks = []
for index in range(2):
    child = os.fork()
    if child == 0:
        try:
            rank(index, 29555, folder)
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    ranks.append(child)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in ranks))
"""


def test_torch_triton_gloo_a_compiler_and_shared_memory_work_when_locked(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", CANDIDATE]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=100, cwd=tmp_path, check=False
        )

    _, done = in_namespaces(run, tmp_dir=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["problems out of reach", "rank 0 done", "rank 1 done"], done
