"""Namespaces: a candidate's processes see no process, network, mount or shared memory but their own.

The warden forks a child which calls `enter_namespaces`; that child forks the *inner init*, process 1 of the new PID
namespace, which calls `finish_namespaces` and then forks the ranks. The kernel kills every process of a PID namespace
with its process 1, so no candidate can leave a daemon behind, whatever it forks, detaches or ignores.

Nothing here is assumed to work: a container may forbid all of it. Each layer is tried, and `Layers` says which hold.

Call `enter_namespaces` in a **freshly forked** child. Without root it needs a user namespace first, which the kernel
refuses to a process with several threads (EINVAL), and importing torch may start one; a forked child has a single one.
The PID, network, mount and IPC namespaces do not care. After it, that child can start no thread, only fork.
"""

import errno
import fcntl
import functools
import os
import platform
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pkb.rank.isolation import syscalls as kernel
from pkb.types.processes import die_with_parent

# PID last: the first fork after it is the inner init, so nothing may be tried in a child any more.
_FLAGS = {"network": 0x40000000, "mount": 0x00020000, "ipc": 0x08000000, "pid": 0x20000000}
_CLONE_NEWUSER = 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 2, 4, 8, 1 << 12, 1 << 14, 1 << 18
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_PID_MAX = "/proc/sys/kernel/pid_max"
_SEGMENTS = {"shmall": (256 << 20) // os.sysconf("SC_PAGESIZE"), "msgmni": 64}
"""Of System V, for the whole IPC namespace: pages of shared memory, and queues of 16 KiB each."""
_INODES = 1 << 18  # of a file system in memory: each takes a KiB of the kernel's, which no size of files counts
_RESERVED_PIDS = 300  # once numbers have wrapped, the kernel gives out none below this


@dataclass(frozen=True)
class Layers:
    """Which namespaces were entered. `report` says it in words, one entry a layer, `on` or `off: why`."""

    pid: bool
    network: bool
    mount: bool
    ipc: bool
    user: bool
    private_shm_bytes: int | None
    private_tmp_bytes: int | None
    outer_pid_max_fd: int | None
    """Opened before the PID namespace: reads the host's limit even from inside."""
    report: dict[str, str]


def fork_bound(body: Callable[[], None]) -> int:
    """A child that runs the body and dies with this process."""
    alive = os.pidfd_open(os.getpid())
    child = os.fork()
    if child == 0:
        try:
            die_with_parent(parent_pidfd=alive)
            os.close(alive)
            body()
        finally:
            os._exit(3)
    os.close(alive)
    return child


def enter_namespaces(*, private_shm_bytes: int | None, private_tmp_bytes: int | None) -> Layers:
    """Leaves the machine's namespaces, as far as the kernel lets us. The PID namespace begins with the next fork.

    The two sizes are limits of the tmpfs which `finish_namespaces` mounts on /dev/shm and on the temporary directory; None
    leaves that one shared. Of the network there is a loopback of its own.
    """
    report: dict[str, str] = {}
    outer = _open_pid_max()
    user = _mount_namespace_refused() is not None and _enter_user_namespace(report)
    entered: dict[str, bool] = {}
    for name, flag in _FLAGS.items():
        error = _mount_namespace_refused() if name == "mount" else None
        if name == "pid":
            error = _proc_refused()
        if name != "mount" and error is None:
            error = _refusal(name, flag)
        entered[name] = error is None
        report[name] = "on" if error is None else f"off: {error.strerror}"
    if outer is not None and not entered.get("pid"):
        os.close(outer)
        outer = None
    return Layers(
        **entered,
        user=user,
        private_shm_bytes=private_shm_bytes,
        private_tmp_bytes=private_tmp_bytes,
        outer_pid_max_fd=outer,
        report=report,
    )


def _open_pid_max() -> int | None:
    try:
        return os.open(_PID_MAX, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _in_fork(attempt: Callable[[], None]) -> OSError | None:
    """Whether `attempt` works, found out in a child that then ends: some failures cannot be undone."""
    child = os.fork()
    if child == 0:
        code = 255
        try:
            attempt()
            code = 0
        except OSError as error:
            code = error.errno or 255
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return None if code == 0 else OSError(code, os.strerror(code) if 0 < code < 255 else "failed")


def _refusal(name: str, flag: int) -> OSError | None:
    try:
        kernel.unshare(flag, what=f"new {name} namespace")
    except OSError as error:
        return error
    return None


def _mount_namespace_refused() -> OSError | None:
    """Only asks. The inner init makes its own: in a common one its fresh /proc would also cover the caller's."""
    return _in_fork(lambda: kernel.unshare(_FLAGS["mount"], what="new mount namespace"))


def _proc_refused() -> OSError | None:
    """Whether a PID namespace would keep the host's /proc, in which CUDA does not find its own threads (error 304)."""

    def rehearse() -> None:
        _own_mounts()
        kernel.unshare(_FLAGS["pid"], what="new pid namespace")
        if error := _in_fork(_mount_proc):
            raise error

    error = _in_fork(rehearse)
    return None if error is None else OSError(error.errno, f"no /proc of its own ({error.strerror})")


def _enter_user_namespace(report: dict[str, str]) -> bool:
    """Becomes root of a user namespace with our own number in it, so that files keep their owner."""
    uid, gid = os.getuid(), os.getgid()

    def become() -> None:
        kernel.unshare(_CLONE_NEWUSER, what="new user namespace")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")

    def rehearse() -> None:
        become()
        kernel.unshare(_FLAGS["mount"], what="new mount namespace")

    if kernel.thread_count() > 1:
        report["user"] = f"off: {kernel.thread_count()} threads, and the kernel wants one; call it in a forked child"
        return False
    # Some distributions let anyone make the namespace but give no rights in it, which leaves the process nobody.
    if error := _in_fork(rehearse):
        report["user"] = f"off: user namespaces are closed to us ({error.strerror})"
        return False
    become()
    report["user"] = "on"
    return True


def finish_namespaces(
    layers: Layers, *, tmp_dir: Path | None = None, hidden: Sequence[Path] = (), max_processes: int | None = 4096
) -> dict[str, str]:
    """In the inner init: mounts, loopback, the limit on processes. Returns the report, `layers.report` included.

    `tmp_dir` must exist and becomes a tmpfs of its own. Each of `hidden` is covered by an empty read-only directory:
    do so with /run, whose sockets (a container engine's, say) Landlock cannot guard. `max_processes` counts threads
    too.
    """
    report = dict(layers.report)
    if layers.network:
        report["loopback"] = attempt(_loopback_up)
    if layers.ipc:
        report["segments"] = attempt(_limit_segments)
    if layers.mount:
        report["private mounts"] = attempt(_own_mounts)
    if report.get("private mounts") != "on":
        for name in ("proc", "shm", "tmp", "hidden", "process limit"):
            report[name] = "off: needs a mount namespace"
        return report
    report["proc"] = attempt(_mount_proc) if layers.pid else "off: needs a PID namespace"
    report["shm"] = _private(Path("/dev/shm"), layers.private_shm_bytes)
    # Candidates load the libraries that they build here, so no MS_NOEXEC.
    report["tmp"] = _private(tmp_dir, layers.private_tmp_bytes)
    covered = [attempt(functools.partial(cover, path)) for path in hidden if path.is_dir()]
    report["hidden"] = next((answer for answer in covered if answer != "on"), "on" if covered else "off: not asked for")
    if max_processes is None or layers.outer_pid_max_fd is None or report["proc"] != "on":
        report["process limit"] = "off: " + ("not asked for" if max_processes is None else "needs a /proc of its own")
    else:
        report["process limit"] = _limit_processes(max_processes, outer=layers.outer_pid_max_fd)
        os.close(layers.outer_pid_max_fd)  # no rank inherits a descriptor of the host
    return report


def attempt(step: Callable[[], None]) -> str:
    """`on`, or `off` and why."""
    try:
        step()
    except OSError as error:
        return f"off: {error.strerror or error}"
    return "on"


def _own_mounts() -> None:
    kernel.unshare(_FLAGS["mount"], what="new mount namespace")
    # A mount made while propagation is still shared would appear on the host.
    kernel.mount("none", "/", kind=None, flags=_MS_REC | _MS_PRIVATE)


def _mount_proc() -> None:
    kernel.mount("proc", "/proc", kind="proc", flags=_MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def _private(path: Path | None, size_bytes: int | None) -> str:
    if path is None or size_bytes is None:
        return "off: not asked for"
    data = f"size={size_bytes},nr_inodes={_INODES},mode=1777"
    return attempt(lambda: kernel.mount("tmpfs", str(path), kind="tmpfs", flags=_MS_NOSUID | _MS_NODEV, data=data))


def cover(path: Path) -> None:
    """With an empty folder, for all processes of this mount namespace."""
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC | _MS_RDONLY
    kernel.mount("tmpfs", str(path), kind="tmpfs", flags=flags, data="size=4k,mode=755")


def bind(folder: Path, target: Path) -> None:
    """`target` becomes another name of `folder`, for all processes of this mount namespace."""
    kernel.mount(str(folder), str(target), kind=None, flags=_MS_BIND)


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh22x", b"lo", 0)
        (flags,) = struct.unpack_from("h", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request), 16)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | _IFF_UP))


def _limit_segments() -> None:
    """Memory that no process maps and no descriptor leads to is in nobody's account, where no cgroup bounds it. Each IPC
    namespace has limits of its own."""
    for name, most in _SEGMENTS.items():
        Path(f"/proc/sys/kernel/{name}").write_text(str(most))


def _limit_processes(count: int, *, outer: int) -> str:
    """Lowers pid_max of this namespace, which stops a fork bomb: each namespace has its own since Linux 6.14.

    Elsewhere the file is the host's, and writing it would strangle the machine. So the kernel's version must say so,
    then a harmless write (one less) must leave the host's value alone, and only then the real limit is set.
    """
    release = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2] if part.isdigit())
    if release < (6, 14):
        return "off: a limit per PID namespace needs Linux 6.14; use a cgroup's pids.max"
    try:
        host = _read_at_start(outer)
        inner = Path(_PID_MAX)
        if (before := int(inner.read_text())) == host:
            inner.write_text(str(before - 1))
            if _read_at_start(outer) != host:
                inner.write_text(str(before))
                return "off: pid_max is the whole machine's here"
        limit = _RESERVED_PIDS + count
        while True:
            try:
                inner.write_text(str(limit))
                break
            except OSError as error:
                # The kernel's minimum grows with the number of CPUs.
                if error.errno != errno.EINVAL or limit >= before:
                    raise
                limit *= 2
        if _read_at_start(outer) != host:
            inner.write_text(str(host))
            return "off: pid_max is the whole machine's here"
    except OSError as error:
        return f"off: {error.strerror}"
    return f"on: at most {limit - _RESERVED_PIDS} processes and threads"


def _read_at_start(descriptor: int) -> int:
    return int(os.pread(descriptor, 32, 0))
