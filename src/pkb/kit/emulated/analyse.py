"""Reads the logs of all ranks after a recorded run, and says which accesses raced: races/*.cpp, a program of its own.

A log was written by a candidate's process, so the program trusts nothing in it.
"""

import fcntl
import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from pkb.kit.cache import Recipe, content_key
from pkb.kit.emulated.recipe import HERE, _compiler, together
from pkb.kit.nvcc import run_compiler

SOURCES = HERE / "races"
EVENTS = HERE / "runtime" / "events.h"
SHARED_BYTES = 4096
"""Of the file that all ranks share."""
LOG_BYTES = 256 << 20
"""Of the log of one rank: a sparse file, of which only what is written takes memory."""
LIMIT_S = 120.0
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def analyser_recipe() -> Recipe:
    compiler, identity = _compiler()
    flags = ["-std=c++20", "-O2", "-Wall"]
    sources = sorted(SOURCES.glob("*.cpp"))

    def build(scratch: Path, output: Path) -> None:
        (scratch / "all.cpp").write_text(together(sources))
        run_compiler([str(compiler), *flags, "all.cpp", "-o", output.name], scratch=scratch, name="race_analyser")

    texts = [path.read_text() for path in (*sources, *sorted(SOURCES.glob("*.h")), EVENTS)]
    return Recipe(content_key("race analyser", *texts, *flags, identity), ".exe", "race_analyser", build)


def make_files(ranks: int, *, log_bytes: int = LOG_BYTES) -> tuple[int, list[int]]:
    """The file that ranks share, and a log for each: descriptors, to be closed by the caller. Of a fixed size: no rank can cut
    them short under a reader, or make them larger."""
    return _memory_file("pkb-race-counter", SHARED_BYTES), [
        _memory_file("pkb-race-log", log_bytes) for _ in range(ranks)
    ]


def _memory_file(name: str, size: int) -> int:
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


def analyse(logs: Sequence[int], *, run: Callable[..., Any] = subprocess.run) -> dict[str, Any]:
    """What the program says of logs of our own, as docs/races.md has it. The judge runs it behind walls instead, with limits
    (`judge/stages/race_analyser.py`). `run` is `subprocess.run` or something like it."""
    program = analyser_recipe().obtain().path
    done = run(
        [str(program), *map(str, logs)], pass_fds=tuple(logs), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, check=True, timeout=LIMIT_S,
    )  # fmt: skip
    return cast(dict[str, Any], json.loads(done.stdout))
