"""What faulted on the emulated GPU, in the words of a crash.

The runtime (kit/emulated/runtime/faults.cpp) prints one line before it ends a rank's process. A candidate can print the same
line: it changes what a verdict says of the crash, never the verdict.
"""

import re
from dataclasses import replace

from pkb.candidates.source_lines import SourceLines
from pkb.judge.decision import Decided
from pkb.judge.hints import FAULT_HINTS
from pkb.types.verdict import FailureKind, Verdict
from pkb.types.words import without_controls

_LINE = re.compile(
    r"CUDA emulator, rank (?P<rank>\d{1,4}): (?P<what>[^\n]{1,600}?), kernel (?P<kernel>[^\n]{1,200}?), "
    r"(?P<thread>block \([\d, ]{1,40}\), thread \([\d, ]{1,40}\))(?:, at (?P<file>[\w.+-]{1,150}):(?P<line>\d{1,7}))?$",
    re.MULTILINE,
)


def with_fault(decided: Decided, printed: str, lines: SourceLines) -> Decided:
    """A rank that was ended in the middle of a kernel: its verdict begins with the fault, and with the line it is in."""
    failure = decided.evidence.failure
    if decided.verdict is not Verdict.CRASH or failure is None or failure.kind is not FailureKind.PROCESS_ENDED:
        return decided
    if (found := _LINE.search(printed)) is None:
        return decided
    said = without_controls(f"rank {found['rank']}: {found['what']}, kernel {found['kernel']}, {found['thread']}")
    if found["file"]:
        place = lines.at(found["file"], int(found["line"]))
        where = f"{found['file']}:{found['line']}"
        said += f", line {place.candidate_line} ({where})" if place.candidate_line else f", {where}"
        said += f": {place.text}" if place.text else ""
    name = next((name for name in FAULT_HINTS if found["what"].startswith(name)), "")
    rank = int(found["rank"]) if int(found["rank"]) in decided.evidence.failing_ranks else failure.rank
    named = replace(decided.evidence, failure=replace(failure, rank=rank, name=name))
    detail = decided.detail.replace(failure.message, said, 1)  # what else it says, such as at which size, stays
    return replace(decided, detail=detail, evidence=named)
