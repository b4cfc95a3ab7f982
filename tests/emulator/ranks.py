"""Ranks that run kernels on the CPU, one pool for each number of them."""

import multiprocessing
import shutil
from collections.abc import Callable
from pathlib import Path

from cases import Case, run_case

from world import RankError, World

PRELOADED = ["torch", "torch.distributed", "cases"]
# Imported once, not once a rank (if no other test has started ranks before). Nothing that brings Triton: other tests' ranks are
# forked from the same process, and those that interpret Triton must say so before they import it.
multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)

WAIT_S = 60.0
"""After that long without a signal a block gives up: a deadlock."""
CASE_LIMIT_S = 300.0
"""Then a case's ranks are killed, whatever they do. It covers the build."""

Run = Callable[..., str]
"""`run(case)` or `run(case, wait_s=2.0)`: what is wrong, or ""."""


class Pools:
    def __init__(self, folder: Callable[[str], Path]) -> None:
        self._folder = folder
        self._build = folder("build")
        self._pools: dict[int, tuple[World, Path]] = {}

    def run(self, case: Case, *, wait_s: float = WAIT_S) -> str:
        """ "" if all ranks find all calls right, else what is wrong. Ranks that died or hang are replaced."""
        if case.world not in self._pools:
            self._pools[case.world] = World(case.world), self._folder(f"symmetric{case.world}")
        world, symmetric = self._pools[case.world]
        try:
            found = world.call(run_case, case, str(self._build), str(symmetric), wait_s, timeout=CASE_LIMIT_S)
        except RankError as error:
            self._end(case.world)
            return str(error)
        return "; ".join(f"rank {rank}: {what}" for rank, what in enumerate(found) if what)

    def close(self) -> None:
        for size in list(self._pools):
            self._end(size)

    def _end(self, size: int) -> None:
        world, symmetric = self._pools.pop(size)
        world.close()
        shutil.rmtree(symmetric, ignore_errors=True)
