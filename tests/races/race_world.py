"""Ranks for a race, forked from a process that has everything imported and built: a run costs a second and leaves nothing.

    found = run(program, world=3, seed=1)      # program(rank) in each rank, recorded and analysed

Each run has a process group, symmetric memory and an emulated GPU of its own.
"""

import contextlib
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pkb.kit.emulated.analyse import analyse, make_files

LIMIT_S = 60.0


@dataclass(frozen=True)
class Ran:
    """What came of a run."""

    report: dict[str, Any] = field(default_factory=dict)
    """The analyser's document."""
    said: tuple[bytes, ...] = ()
    """What the program returned, by rank."""
    trouble: str = ""
    """What a rank raised or died of, or that it did not end."""

    @property
    def kinds(self) -> set[str]:
        return {finding["kind"] for finding in self.report.get("findings", ())}


Program = Callable[[int], bytes]
"""Called in each rank, with its number; the group and symmetric memory are there, and recording is on."""


def run(
    program: Program, *, world: int, seed: int = 1, cuda: str = "", nvls: bool = False, recorded: bool = True,
    weak: bool = False,
) -> Ran:  # fmt: skip
    """`cuda` is a candidate's text, where it needs the emulated GPU. In weak execution nothing is analysed."""
    with tempfile.TemporaryDirectory(prefix="pkb-races-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        logs = _logs(stack, world) if recorded else []
        pids = []
        for rank in range(world):
            pid = os.fork()
            if pid == 0:
                _rank(program, rank, world, folder, logs, seed, cuda, nvls, weak)
            pids.append(pid)
        trouble = _reap(pids)
        said = tuple(
            (folder / f"said-{rank}").read_bytes() if (folder / f"said-{rank}").exists() else b""
            for rank in range(world)
        )
        raised = [
            (folder / f"raised-{rank}").read_text() for rank in range(world) if (folder / f"raised-{rank}").exists()
        ]
        report = analyse(logs[1:]) if logs and not weak else {}
        return Ran(report, said, "\n".join(filter(None, [*raised, trouble])))


def _logs(stack: contextlib.ExitStack, world: int) -> list[int]:
    shared, logs = make_files(world)
    for descriptor in (shared, *logs):
        stack.callback(os.close, descriptor)
    return [shared, *logs]


def _reap(pids: list[int]) -> str:
    deadline, left, trouble = time.monotonic() + LIMIT_S, dict(enumerate(pids)), ""
    while left:
        for rank, pid in list(left.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del left[rank]
                if status and not trouble:
                    trouble = f"rank {rank}: ended with status {status}"
                    deadline = min(deadline, time.monotonic() + 2)
        if left and time.monotonic() > deadline:
            trouble = trouble or f"ranks {sorted(left)} did not end"
            for pid in left.values():
                os.kill(pid, signal.SIGKILL)
            for pid in left.values():
                os.waitpid(pid, 0)
            break
        time.sleep(0.003)
    return trouble


def _rank(
    program: Program, rank: int, world: int, folder: Path, logs: list[int], seed: int, cuda: str, nvls: bool, weak: bool
) -> None:
    """Never returns."""
    status = 1
    try:
        os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "PKB_EMULATOR_SEED": str(seed), "PKB_NVLS": "1" if nvls else "0"}
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # candidates talk
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        store = dist.FileStore(str(folder / "store"), world)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=LIMIT_S))
        from pkb.rank.devices import CpuDevice
        from pkb.rank.emulate import aliases
        from pkb.rank.emulate.cuda import wanted
        from pkb.rank.symmetric import memory as symmetric

        symmetric.install(folder)
        aliases.install("cpu", shares_device=True, rank=rank, source=cuda)
        if cuda:
            wanted.install(CpuDevice(), cuda)
        if logs:
            from pkb.rank.emulate.races import recording, untouched

            untouched.replaced = lambda: ""  # programs here replace parts of the recorder on purpose
            weak_seed = 8 * seed + rank if weak else None
            with recording.recorded(logs[0], logs[1 + rank], rank=rank, world=world, weak_seed=weak_seed):
                said = program(rank)
        else:
            said = program(rank)
        (folder / f"said-{rank}").write_bytes(said)
        status = 0
    except BaseException:
        (folder / f"raised-{rank}").write_text(f"rank {rank}: {traceback.format_exc()}")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
