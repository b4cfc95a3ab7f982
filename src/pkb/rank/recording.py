"""Recorded calls on this rank: the log that the judge hands over is written by `emulate/recorder.py` until it ends."""

import itertools
import os
from collections.abc import Callable
from typing import Any

from pkb.kit.errors import CompileError, CompilerMissing
from pkb.rank.emulate.cuda import wanted as emulated_gpu
from pkb.types.protocol.limits import clean

CANNOT = (OSError, CompileError, CompilerMissing, AttributeError)
"""What it takes to record may be missing: a compiler, memory, a runtime that knows how."""


class Recording:
    def __init__(self, *, rank: int, world: int) -> None:
        self._rank, self._world = rank, world
        self.active = False

    def begin(self, fds: list[int], *, seed: int) -> str:
        """Why nothing is recorded; empty if it is."""
        if os.environ.get("PKB_EMULATE_CUDA") != "1":
            return "no compiler for the recorder"
        try:
            from pkb.rank.emulate import recorder

            shared, log = fds
            recorder.begin(shared, log, rank=self._rank, world=self._world)
        except (*CANNOT, ValueError) as error:
            return _words(error)
        emulated_gpu.reseed(seed)
        self.active = True
        return ""

    def end(self) -> str:
        if not self.active:
            return ""
        self.active = False
        from pkb.rank.emulate import recorder

        try:
            recorder.end()
        except (*CANNOT, ValueError) as error:
            return _words(error)
        return ""

    def watched(self, solution: Callable[..., Any]) -> Callable[..., Any]:
        """With the beginning and the end of each call in the log, while one is written."""
        if not self.active:
            return solution
        from pkb.rank.emulate import recorder

        numbers = itertools.count()

        def call(*arguments: Any) -> Any:
            number = next(numbers)
            recorder.host(recorder.Host.CALL_BEGIN, number)
            try:
                return solution(*arguments)
            finally:
                recorder.host(recorder.Host.CALL_END, number)

        return call


def _words(error: BaseException) -> str:
    return clean(f"calls cannot be recorded: {type(error).__name__}: {error}", 300)
