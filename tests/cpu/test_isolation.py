"""Namespaces: what a candidate forks dies with the inner init, and nothing outside can be seen, reached or littered.

Each test skips with the kernel's own reason where the machine lacks the layer it is about.
"""

import errno
import os
import platform
import select
import signal
import socket
import tempfile
import time
from pathlib import Path

import pytest
from forked import error_of, in_child, in_namespaces

from pkb.rank.isolation import namespaces
from pkb.rank.isolation import syscalls as kernel
from pkb.rank.isolation.read_only import make_read_only
from pkb.rank.isolation.report import probe_isolation
from pkb.types.processes import die_with_parent


@pytest.fixture(scope="module")
def machine() -> dict[str, str]:
    return probe_isolation()


def need(machine: dict[str, str], *layers: str) -> None:
    for layer in layers:
        if not machine.get(layer, "off: not reported").startswith("on"):
            pytest.skip(f"{layer}: {machine.get(layer)}")


def ends_within(descriptor: int, seconds: float) -> bool:
    """Whether every process that holds the pipe's other end is gone in time."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if select.select([descriptor], [], [], left)[0] and os.read(descriptor, 64) == b"":
            return True
    return False


def daemonise(alive: int) -> None:
    """As a candidate would: away from its parent, its session and its signals, `alive` held open."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            os.write(alive, f"{os.getpid()}\n".encode())
            time.sleep(30)
        os._exit(0)


def carry(alive: int, *, isolated: bool) -> None:
    """The process between judge and inner init; it tells the init's number by its own name."""
    if isolated:
        layers = namespaces.enter_namespaces(private_shm_bytes=None, private_tmp_bytes=None)
    parent = os.pidfd_open(os.getpid())
    init = os.fork()
    if init == 0:
        die_with_parent(parent_pidfd=parent)
        if isolated:
            namespaces.finish_namespaces(layers)
        daemonise(alive)
        os.close(alive)
        time.sleep(30)
        os._exit(0)
    os.close(alive)
    time.sleep(0.05)  # until the init has its own /proc, which must not cover ours
    Path(f"/proc/self/task/{os.getpid()}/comm").write_text(f"init={init}")
    time.sleep(30)


def test_probe_names_every_layer_and_a_remedy(machine: dict[str, str]) -> None:
    assert set(machine) >= {"pid", "network", "mount", "files", "peers' memory", "signals", "capabilities"}
    assert "probe" not in machine
    assert all(words.startswith(("on", "off: ")) for words in machine.values())


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("killed", ["init", "carrier"])
def test_a_daemon_dies_with_the_inner_init(machine: dict[str, str], isolated: bool, killed: str) -> None:
    need(machine, "pid", "mount")
    read_end, write_end = os.pipe()
    if (carrier := os.fork()) == 0:
        try:
            carry(write_end, isolated=isolated)
        finally:
            os._exit(1)
    os.close(write_end)
    daemon = int(os.read(read_end, 32))
    while "init=" not in (name := Path(f"/proc/{carrier}/comm").read_text()):
        time.sleep(0.01)
    init = int(name.split("=")[1])
    os.kill(init if killed == "init" else carrier, signal.SIGKILL)
    try:
        # The control: without a PID namespace the daemon lives on, so the pipe would not end by itself.
        assert ends_within(read_end, 5 if isolated else 0.3) is isolated
    finally:
        os.kill(carrier, signal.SIGKILL)
        os.waitpid(carrier, 0)
        if not isolated:
            os.kill(daemon, signal.SIGKILL)
        os.close(read_end)


def test_die_with_parent_notices_a_parent_already_gone() -> None:
    def orphan() -> None:
        die_with_parent(expected_ppid=os.getppid() + 1)

    with pytest.raises(AssertionError, match=f"status {int(signal.SIGKILL)}"):
        in_child(orphan)


def test_the_judge_can_neither_be_seen_nor_signalled(machine: dict[str, str]) -> None:
    need(machine, "pid", "proc")
    judge = os.getpid()

    def look() -> tuple[bool, bool, set[int]]:
        numbers = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
        return error_of(lambda: os.kill(judge, 0)) == 3, Path(f"/proc/{judge}").exists(), numbers

    _, (no_such_process, visible, numbers) = in_namespaces(look)
    assert no_such_process
    assert not visible
    assert numbers == {1, 2}


def test_shared_memory_is_private_bounded_and_leaves_nothing(machine: dict[str, str]) -> None:
    need(machine, "shm")
    before = set(Path("/dev/shm").iterdir())

    def fill() -> tuple[int, int, int]:
        seen, files = len(list(Path("/dev/shm").iterdir())), os.statvfs("/dev/shm").f_files
        return seen, files, error_of(lambda: Path("/dev/shm/pkb-litter").write_bytes(bytes(2 << 20)))

    _, (seen, files, error) = in_namespaces(fill, shm=1 << 20)
    assert seen == 0
    assert files <= 1 << 18, "empty files take memory too"
    assert error == 28  # ENOSPC
    assert set(Path("/dev/shm").iterdir()) == before


def test_the_temporary_folder_is_private_and_hidden_ones_are_empty(machine: dict[str, str], tmp_path: Path) -> None:
    need(machine, "tmp")
    tmp_dir, secret = tmp_path / "tmp", tmp_path / "secret"
    tmp_dir.mkdir()
    secret.mkdir()
    (secret / "answer").write_text("42")

    def work() -> tuple[list[Path], int]:
        (tmp_dir / "litter").write_text("x")
        return list(secret.iterdir()), error_of(lambda: (secret / "new").write_text("x"))

    report, (found, write_error) = in_namespaces(work, tmp_dir=tmp_dir, hidden=[secret])
    assert report["tmp"] == report["hidden"] == "on"
    assert found == []
    assert write_error == 30  # EROFS
    assert list(tmp_dir.iterdir()) == []
    assert (secret / "answer").read_text() == "42"


def test_loopback_works_and_nothing_beyond_it(machine: dict[str, str]) -> None:
    need(machine, "network", "loopback")
    with socket.create_server(("127.0.0.1", 0)) as outside:
        port = outside.getsockname()[1]

        def talk() -> tuple[bytes, int, int, list[str]]:
            with (
                socket.create_server(("127.0.0.1", 0)) as server,
                socket.create_connection(server.getsockname(), timeout=2) as client,
                server.accept()[0] as accepted,
            ):
                client.sendall(b"hello")
                heard = accepted.recv(5)
            to_judge = error_of(lambda: socket.create_connection(("127.0.0.1", port), timeout=2).close())
            beyond = error_of(lambda: socket.create_connection(("192.0.2.1", 80), timeout=2).close())
            return heard, to_judge, beyond, [name for _, name in socket.if_nameindex()]

        socket.create_connection(("127.0.0.1", port), timeout=2).close()  # the control: it is reachable from here
        _, (heard, to_judge, beyond, interfaces) = in_namespaces(talk)
    assert heard == b"hello"
    assert to_judge == 111  # ECONNREFUSED
    assert beyond == 101  # ENETUNREACH
    assert "lo" in interfaces
    assert not [name for name in interfaces if name.startswith(("eth", "en", "wl"))]


def test_segments_of_system_v_are_few_and_the_host_keeps_its_own(machine: dict[str, str]) -> None:
    need(machine, "segments")
    limit = Path("/proc/sys/kernel/shmall")
    host = limit.read_text()
    _, inner = in_namespaces(lambda: int(limit.read_text()))
    assert inner * os.sysconf("SC_PAGESIZE") == 256 << 20
    assert limit.read_text() == host


def test_a_fork_bomb_meets_its_limit_and_the_host_keeps_its_own(machine: dict[str, str]) -> None:
    need(machine, "process limit")
    host = Path("/proc/sys/kernel/pid_max").read_text()

    def bomb() -> tuple[int, int]:
        children: list[int] = []
        limit = int(Path("/proc/sys/kernel/pid_max").read_text())
        try:
            while len(children) < limit:
                if (child := os.fork()) == 0:
                    time.sleep(30)
                    os._exit(0)
                children.append(child)
        except OSError:
            pass
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        return len(children), limit

    report, (forked, limit) = in_namespaces(bomb, max_processes=64)
    assert Path("/proc/sys/kernel/pid_max").read_text() == host
    assert report["process limit"].startswith("on: at most ")
    assert limit < int(host)
    assert 0 < forked < limit, "the bomb was not stopped by the limit"
    report, _ = in_namespaces(lambda: None, max_processes=None)
    assert report["process limit"] == "off: not asked for"


def test_a_host_wide_pid_max_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file stands for the limit of a kernel which claims to be new and yet has one limit for all."""
    shared = tmp_path / "pid_max"
    shared.write_text("32768")
    monkeypatch.setattr(namespaces, "_PID_MAX", str(shared))
    monkeypatch.setattr(platform, "release", lambda: "6.18.1-generic")
    with shared.open() as outer:
        answer = namespaces._limit_processes(64, outer=outer.fileno())
    assert answer.startswith("off")
    assert shared.read_text() == "32768"
    monkeypatch.setattr(platform, "release", lambda: "6.8.0-45-generic")
    with shared.open() as outer:
        assert "6.14" in namespaces._limit_processes(64, outer=outer.fileno())


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody else")
def test_an_unprivileged_user_gets_the_same_through_a_user_namespace() -> None:
    def as_nobody() -> dict[str, str]:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1, what="dumpable")  # as after any program's start
        report, (uid, processes) = in_namespaces(
            lambda: (os.getuid(), [entry.name for entry in Path("/proc").iterdir()])
        )
        assert report["user"].startswith("off") or (uid == 65534 and "2" in processes and "3" not in processes)
        return report

    report = in_child(as_nobody)
    if report["user"].startswith("off"):
        pytest.skip(report["user"])
    assert {report[name] for name in ("pid", "network", "mount", "ipc", "proc", "shm", "loopback")} == {"on"}


@pytest.mark.parametrize("uid", [0, 65534])
def test_only_what_is_its_own_can_be_changed(machine: dict[str, str], uid: int) -> None:
    need(machine, "file modes")
    if os.getuid() != 0 and uid == 0:
        pytest.skip("needs root")

    def as_user() -> tuple[dict[str, str], dict[str, int]]:
        if os.getuid() != uid:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1, what="dumpable")
        with tempfile.TemporaryDirectory() as folder:
            others, own = Path(folder, "others"), Path(folder, "own")
            own.mkdir()
            others.write_text("")

            def work() -> dict[str, int]:
                assert make_read_only([own], private_mounts=True) == "on"
                (own / "file").write_text("")
                return {
                    "mode": error_of(lambda: others.chmod(0o600)),
                    "time": error_of(lambda: os.utime(others)),
                    "name": error_of(others.unlink),
                    "own mode": error_of(lambda: (own / "file").chmod(0o600)),
                    "shm": error_of(lambda: Path("/dev/shm/pkb-own").write_text("x")),
                    "proc": error_of(lambda: Path("/proc/self/comm").write_text("x")),
                    "null": error_of(lambda: Path("/dev/null").write_text("x")),
                }

            return in_namespaces(work)

    report, found = in_child(as_user)
    if report.get("private mounts") != "on":
        pytest.skip(report.get("user", ""))
    refused = {name for name, code in found.items() if code == errno.EROFS}
    assert refused == {"mode", "time", "name"}, found
    assert not any(code for name, code in found.items() if name not in refused), found


def test_nothing_becomes_read_only_where_others_would_see_it() -> None:
    assert make_read_only([], private_mounts=False) == "off: needs a mount namespace"
