"""The parent of one side's ranks: imports torch once, walls the side off, forks the ranks and outlives none of them.

    judge -> warden -> middle (enters the namespaces) -> init (process 1 of a PID namespace) -> ranks

Killing the judge kills the warden, which kills the init, and with the init dies everything in its namespace, however often a
candidate has forked. Runs as `python -m pkb.rank.warden SETTINGS_FD JUDGE_PID`.
"""

import gc
import importlib
import json
import mmap
import os
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from pkb.rank.devices import RankBarrier
from pkb.rank.isolation.namespaces import (
    Layers,
    die_with_parent,
    enter_namespaces,
    finish_namespaces,
    fork_bound,
)


def main() -> None:
    die_with_parent(int(sys.argv[2]))
    settings = int(sys.argv[1])
    config = json.loads(os.pread(settings, os.fstat(settings).st_size, 0))
    os.close(settings)
    _preload(config)
    # A child of its own enters the namespaces: the kernel wants a single thread, and importing torch may have started more.
    middle = fork_bound(lambda: _middle(config))
    _close_rank_ends(config)
    sys.exit(_exit_status(middle))


def _exit_status(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF


def _middle(config: dict[str, Any]) -> None:
    layers = Layers()
    if config["isolate"]:
        layers = enter_namespaces(
            private_network=True, private_shm_bytes=config["shm_bytes"], private_tmp_bytes=config["tmp_bytes"]
        )
        die_with_parent()  # entering a user namespace clears it
    init = fork_bound(lambda: _init(config, layers))
    _close_rank_ends(config)
    os._exit(_exit_status(init))


def _preload(config: dict[str, Any]) -> None:
    """Import what all ranks need before they are forked: it costs seconds, once instead of once per rank."""
    modules = ["torch", "torch.distributed", "torch.distributed._symmetric_memory", f"pkb.rank.{config['role']}"]
    if config["preload_triton"]:
        modules += ["triton", "triton.language"]
    for module in modules:
        importlib.import_module(module)
    if config["preload_triton"] and os.environ.get("TRITON_INTERPRET") == "1":
        importlib.import_module("pkb.rank.emulate.triton_interpreter").mend_bfloat16()
    importlib.import_module("torch").set_num_threads(1)
    gc.collect()
    gc.freeze()


def _close_rank_ends(config: dict[str, Any]) -> None:
    """The judge sees a rank's end as the closing of its channel, so nobody else may hold it open."""
    for fd in config["channels"]:
        os.close(fd)


def _init(config: dict[str, Any], layers: Layers) -> None:
    """Process 1 of the side: finish the namespaces, fork the ranks, reap whatever dies, end when the ranks have."""
    imported = time.monotonic()
    report = {"namespaces": "off: not asked for"}
    if config["isolate"]:
        # Sockets of other services live in /run, and Landlock does not guard connecting to them.
        report = finish_namespaces(
            layers, tmp_dir=Path(config["folder"]), hidden=[Path("/run")], max_processes=config["max_processes"]
        )
    page = mmap.mmap(-1, 64 * RankBarrier.SLOT_BYTES)
    ranks = {
        fork_bound(partial(_rank, config, rank, page, report, imported)): rank for rank in range(config["world_size"])
    }
    _close_rank_ends(config)
    while ranks:
        pid, status = os.wait()
        if pid in ranks:
            os.write(config["exits"], f"{ranks.pop(pid)} {os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _rank(config: dict[str, Any], rank: int, page: mmap.mmap, layers: dict[str, str], imported: float) -> None:
    """A rank process, from fork to exit. Nothing returns from here."""
    from pkb.rank.server import Rank, RankConfig, StatusPage, failure, prepare_process
    from pkb.types.channel import Channel, ChannelClosed

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for peer, fd in enumerate(config["channels"]):
        if peer != rank:
            os.close(fd)
    for peer, fd in enumerate(config["stacks"]):
        if peer != rank:
            os.close(fd)
    os.close(config["exits"])
    own = RankConfig(
        role=config["role"], rank=rank, world_size=config["world_size"], platform=config["platform"],
        device=config["device"], device_index=config["device_indices"][rank], backend=config["backend"],
        folder=Path(config["folder"]), threads=config["threads"], options=config["options"],
    )  # fmt: skip
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(own.world_size),
        "LOCAL_WORLD_SIZE": str(own.world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
    }  # fmt: skip
    prepare_process(own, config["stacks"][rank])
    channel = Channel(socket.socket(fileno=config["channels"][rank]))
    status_page = mmap.mmap(config["status"], 0)
    status = StatusPage(status_page, rank)
    role: type[Rank]
    if own.role == "oracle":
        from pkb.rank.oracle import OracleRank as role
    else:
        from pkb.rank.candidate import CandidateRank as role
    try:
        server = role(own, channel, status, RankBarrier(page, rank, own.world_size))
        server.open()
        server.opened |= {"imports": imported, "ready": time.monotonic()}
        channel.send({"reply": "ready", "isolation": layers, "opened": server.opened})
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
