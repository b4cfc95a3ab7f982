"""Runs the analyser of recorded calls in a sandbox, since it reads what a candidate's processes have written."""

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path

from pkb.candidates.walled_build import BuildLimits, BuildStopped, analysed
from pkb.judge.stages.artifacts import cache_folder
from pkb.judge.stages.race_proof import AnalyserFailed, Trace
from pkb.kit.emulated.analyse import analyser_recipe
from pkb.kit.errors import CompileError, CompilerMissing
from pkb.types.race import ANALYSIS_BYTES

TIME_LIMIT_S = 60.0
MEMORY_BYTES = 3 << 30
HEAD_BYTES, USED_AT = 4096, 16
"""Of a log: where its events begin, and where it says how many bytes of them there are (kit/emulated/runtime/events.h)."""


def analyse(trace: Trace) -> bytes:
    """Returns what the analyser prints about the trace. Raises `AnalyserFailed`."""
    limits = BuildLimits(memory_bytes=MEMORY_BYTES, artifact_bytes=ANALYSIS_BYTES)
    with contextlib.ExitStack() as stack:
        try:
            program = _program()
            copies = [_copied(log, stack) for log in trace.logs]
            return analysed([str(program)], copies, readable=[program], limits=limits, timeout_s=TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AnalyserFailed(f"it takes more than {TIME_LIMIT_S:.0f} s") from None
        except (CompileError, CompilerMissing, BuildStopped, OSError) as error:
            raise AnalyserFailed(str(error)[:200]) from error


def _copied(log: int, stack: contextlib.ExitStack) -> int:
    """A copy that no rank can change any more while it is read."""
    used = int.from_bytes(os.pread(log, 8, USED_AT), "little")
    left = min(HEAD_BYTES + used, os.fstat(log).st_size)
    copy = os.memfd_create("pkb-race-log-copy")
    stack.callback(os.close, copy)
    at = 0
    while left > 0 and (moved := os.sendfile(copy, log, at, left)):
        at, left = at + moved, left - moved
    return copy


def _program() -> Path:
    """Our own source, compiled once and kept with the other builds; nothing of a candidate's is near."""
    recipe = analyser_recipe()
    target = cache_folder() / recipe.file_name
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"building-{os.getpid()}-", dir=target.parent) as scratch:
            made = Path(scratch) / recipe.file_name
            recipe.build(Path(scratch), made)
            made.chmod(0o755)
            made.replace(target)
    return target
