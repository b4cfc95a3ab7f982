"""The parent of one side's ranks: imports torch once, isolates the side, forks the ranks and outlives none of them.

    judge -> warden -> middle (enters the namespaces) -> init (process 1 of a PID namespace) -> ranks

Killing the judge kills the warden, which kills the init, and with the init dies everything in its namespace, however often a
candidate has forked. Runs as `python -m pkb.rank.warden SETTINGS_FD JUDGE_PID`, or forked by a process that has torch imported
already (`template.py`).
"""

import gc
import importlib
import mmap
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pkb.rank.devices import RankBarrier
from pkb.rank.isolation import reach
from pkb.rank.isolation.gate import OWN_SHM, Gate, take_away
from pkb.rank.isolation.namespaces import Layers, enter_namespaces, finish_namespaces, fork_bound
from pkb.rank.isolation.read_only import make_read_only
from pkb.rank.isolation.sockets import bound_sockets, cover_sockets
from pkb.types.processes import die_with_parent
from pkb.types.protocol.codec import decode
from pkb.types.protocol.replies import Ready, facts
from pkb.types.protocol.settings import CandidateOptions, SideSettings


def main() -> None:
    die_with_parent(int(sys.argv[2]))
    settings = read_settings(int(sys.argv[1]))
    preload(settings.role)
    sys.exit(serve(settings))


def read_settings(given: int) -> SideSettings:
    settings = decode(os.pread(given, os.fstat(given).st_size, 0), (SideSettings,))
    os.close(given)
    return settings


def serve(settings: SideSettings, *, judge: int | None = None) -> int:
    """Starts the ranks and stays until they, or the judge, have ended. `judge` is a pidfd of the judge, for a warden that is
    not its child."""
    if settings.preload_triton:
        _preload_triton()
    # A child of its own enters the namespaces: the kernel wants a single thread, and importing torch may have started more.
    middle = fork_bound(lambda: _middle(settings, judge))
    _close_rank_ends(settings)
    if judge is not None:
        waiting = select.poll()
        for end in (judge, os.pidfd_open(middle)):
            waiting.register(end, select.POLLIN)
        if any(end == judge for end, _ in waiting.poll()):
            os._exit(1)  # all below die with their parents
    return _exit_status(middle)


def _exit_status(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF


def _middle(settings: SideSettings, judge: int | None) -> None:
    if judge is not None:
        os.close(judge)  # through it a process could be signalled and its files taken
    sockets = bound_sockets()
    layers = enter_namespaces(private_shm_bytes=settings.shm_bytes, private_tmp_bytes=settings.tmp_bytes)
    die_with_parent()  # entering a user namespace clears it
    init = fork_bound(lambda: _init(settings, layers, sockets))
    _close_rank_ends(settings)
    os._exit(_exit_status(init))


def preload(role: str) -> None:
    """Import what all ranks need before they are forked: it costs seconds, once instead of once per rank."""
    for module in ("torch", "torch.distributed", "torch.distributed._symmetric_memory", f"pkb.rank.{role}"):
        importlib.import_module(module)
    importlib.import_module("torch").set_num_threads(1)
    gc.collect()
    gc.freeze()


def _preload_triton() -> None:
    for module in ("triton", "triton.language"):
        importlib.import_module(module)
    if os.environ.get("TRITON_INTERPRET") == "1":
        importlib.import_module("pkb.rank.emulate.triton_interpreter").mend_bfloat16()


def _close_rank_ends(settings: SideSettings) -> None:
    """The judge sees a rank's end as the closing of its channel, so nobody else may hold it open."""
    for fd in settings.channels:
        os.close(fd)


def _init(settings: SideSettings, layers: Layers, sockets: Sequence[Path]) -> None:
    """Process 1 of the side: finish the namespaces, fork the ranks, reap whatever dies, end when the ranks have."""
    imported = time.monotonic()
    # Sockets of other services live in /run, and Landlock does not guard connecting to them.
    report = finish_namespaces(
        layers, tmp_dir=Path(settings.folder), hidden=[Path("/run")], max_processes=settings.max_processes
    )
    if isinstance(settings.options, CandidateOptions):
        report["sockets"] = _cover_sockets(settings, settings.options, sockets, report)
        own = [Path(path) for path in (settings.folder, *settings.options.writable)]
        report["file modes"] = make_read_only(own, private_mounts=report.get("private mounts") == "on")
        null = os.open(os.devnull, os.O_RDWR)  # the one that was inherited is of a mount that is not read-only
        os.dup2(null, 0)
        os.close(null)
    page = mmap.mmap(-1, 64 * RankBarrier.SLOT_BYTES)
    services, own_shm = _only_to_start(settings)
    gate = Gate() if services or own_shm else None
    ranks = {
        fork_bound(partial(_rank, settings, rank, page, report, imported, gate)): rank
        for rank in range(settings.world_size)
    }
    _close_rank_ends(settings)
    if gate is not None:
        private = report.get("private mounts") == "on"
        gate.release(settings.world_size, partial(take_away, services, own_shm, private_mounts=private))
    while ranks:
        pid, status = os.wait()
        if pid in ranks:
            os.write(settings.exits, f"{ranks.pop(pid)} {os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _cover_sockets(
    settings: SideSettings, options: CandidateOptions, sockets: Sequence[Path], report: dict[str, str]
) -> str:
    if report.get("private mounts") != "on":
        return "off: needs a mount namespace"
    # Ranks meet an MPS server through its daemon's socket.
    mps = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    services = [Path(path) for path in (mps, *options.writable)]
    readable = [*reach.default_readable(), *map(Path, options.readable)]
    return cover_sockets(sockets, services=services, needed=[Path(settings.folder), *readable])


def _only_to_start(settings: SideSettings) -> tuple[list[Path], Path | None]:
    """What is taken from ranks that will load a candidate: services of the platform, and the machine's /dev/shm."""
    if not isinstance(settings.options, CandidateOptions):
        return [], None
    own_shm = None
    if settings.shm_bytes is None:
        own_shm = Path(settings.folder) / OWN_SHM
        own_shm.mkdir()
        own_shm.chmod(0o1777)
    return [Path(path) for path in settings.options.writable], own_shm


def _rank(
    settings: SideSettings, rank: int, page: mmap.mmap, layers: dict[str, str], imported: float, gate: Gate | None
) -> None:
    """A rank process, from fork to exit. Nothing returns from here."""
    from pkb.rank.server import Rank, RankConfig, StatusPage, failure, prepare_process
    from pkb.types.channel import Channel, ChannelClosed

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for peer, fd in enumerate(settings.channels):
        if peer != rank:
            os.close(fd)
    for peer, fd in enumerate(settings.stacks):
        if peer != rank:
            os.close(fd)
    os.close(settings.exits)
    if settings.cores and settings.cores[rank]:
        os.sched_setaffinity(0, settings.cores[rank])
    own = RankConfig(settings, rank)
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(own.world_size),
        "LOCAL_WORLD_SIZE": str(own.world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
    }  # fmt: skip
    prepare_process(own, settings.stacks[rank])
    channel = Channel(socket.socket(fileno=settings.channels[rank]))
    status_page = mmap.mmap(settings.status, 0)
    status = StatusPage(status_page, rank)
    role: type[Rank]
    if settings.role == "oracle":
        from pkb.rank.oracle import OracleRank as role
    else:
        from pkb.rank.candidate import CandidateRank as role
    try:
        server = role(own, channel, status, RankBarrier(page, rank, own.world_size))
        server.open()
        walls = layers | server.isolation | (gate.wait() if gate else {})
        server.opened |= {"imports": imported, "ready": time.monotonic()}
        channel.send(Ready(facts(walls), server.opened))
        server.serve()
    except ChannelClosed:
        pass
    except BaseException as error:
        # The process boundary of the rank itself: the judge is told before the process ends.
        channel.send(failure(error))
    finally:
        # Not sys.exit: exit hooks of a candidate, and destructors of a broken GPU context, have nothing more to say.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
