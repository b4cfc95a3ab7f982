"""Recorded calls on this rank: from `begin` to `end` the log that the judge has handed over is written."""

import contextlib
import importlib
import os
from collections.abc import Callable
from typing import Any

from pkb.kit.errors import CompileError, CompilerMissing
from pkb.rank.emulate.cuda import wanted as emulated_gpu
from pkb.types.protocol.limits import clean

CANNOT = (OSError, CompileError, CompilerMissing, ImportError, AttributeError, ValueError)
"""What it takes to record may be missing: a compiler, memory, a library whose insides are others."""


class Recording:
    def __init__(self, *, rank: int, world: int) -> None:
        self._rank, self._world = rank, world
        self._ways: Any = None
        """How calls are recorded: loaded by those ranks that are asked to."""
        self._open = contextlib.ExitStack()
        self.exact = False
        """Calls are recorded now, and not in weak execution."""
        self.unknown_looks = False
        """In the recording that has ended."""
        self._why_not = ""
        """The one that was begun last is none."""

    def begin(self, fds: list[int], *, seed: int, weak: bool = False) -> str:
        """Starts recording. Returns why nothing is recorded, or an empty string; the same is reported again at the end."""
        self._why_not = self._begin(fds, seed=seed, weak=weak)
        return self._why_not

    def _begin(self, fds: list[int], *, seed: int, weak: bool) -> str:
        if os.environ.get("PKB_EMULATE_CUDA") != "1":
            return "calls cannot be recorded without a C++ compiler"
        self.end()
        try:
            shared, log = fds
            ways = importlib.import_module("pkb.rank.emulate.races.recording")
            weak_seed = seed if weak else None
            self._open.enter_context(
                ways.recorded(shared, log, rank=self._rank, world=self._world, weak_seed=weak_seed)
            )
        except CANNOT as error:
            return _words(error)
        emulated_gpu.reseed(seed)
        self._ways, self.exact = ways, not weak
        return ""

    def end(self) -> str:
        self.unknown_looks = self._ways is not None and self._ways.looks.unknown()
        self._ways, self.exact = None, False
        try:
            self._open.close()
        except CANNOT as error:
            return _words(error)
        return self._why_not

    def imported(self) -> contextlib.AbstractContextManager[None]:
        """What a candidate's file does during its import belongs to no call."""
        return contextlib.nullcontext() if self._ways is None else self._ways.recorded_import()

    def watched(self, solution: Callable[..., Any]) -> Callable[..., Any]:
        """The function itself, or a recorded version of it."""
        return solution if self._ways is None else self._ways.recorded_calls(solution)


def _words(error: BaseException) -> str:
    return clean(f"calls cannot be recorded: {type(error).__name__}: {error}", 300)
