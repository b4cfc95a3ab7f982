"""Runs the analyser of recorded calls behind walls: it reads what a candidate's processes have written."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from pkb.candidates.walled_build import BuildLimits, BuildStopped, analysed
from pkb.judge.stages.race_proof import AnalyserFailed, Trace
from pkb.kit.errors import CompileError, CompilerMissing
from pkb.types.race import ANALYSIS_BYTES

TIME_LIMIT_S = 60.0
"""Of all traces together."""
MEMORY_BYTES = 2 << 30


def analyse(traces: Sequence[Trace]) -> list[bytes]:
    """What it prints of each. Raises `AnalyserFailed`."""
    limits = BuildLimits(memory_bytes=MEMORY_BYTES, artifact_bytes=len(traces) * (ANALYSIS_BYTES + 1))
    try:
        command, readable = _command()
        descriptors = [(trace.shared, *trace.logs) for trace in traces]
        return analysed(command, descriptors, readable=readable, limits=limits, timeout_s=TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise AnalyserFailed(f"it takes more than {TIME_LIMIT_S:.0f} s") from None
    except (CompileError, CompilerMissing, BuildStopped) as error:
        raise AnalyserFailed(str(error)[:200]) from error


def _command() -> tuple[list[str], list[Path]]:
    """The program, and the files that it is read from."""
    raise CompilerMissing("there is no analyser yet")
