"""A fault on the emulated GPU becomes the words of a crash; what a candidate prints decides nothing else."""

from pathlib import Path

import pytest

from pkb.candidates.source import read
from pkb.candidates.source_lines import SourceLines
from pkb.judge.decision import Decided, said_at
from pkb.judge.emulated_fault import with_fault
from pkb.judge.hints import FAULT_HINTS, hints_for
from pkb.types.verdict import Evidence, Failure, FailureKind, Stage, Verdict

TEXT = '''import torch
from pkb.kit import compile

KERNEL = compile("""
extern "C" __global__ void work(int* p) {
  *(int4*)(p + 1) = int4{};
}
""", name="ours").kernel("work")
'''
ENDED = "rank 2 was ended by SIGABRT"
THREAD = "block (0, 1, 0), thread (7, 0, 0)"


@pytest.fixture
def lines(tmp_path: Path) -> SourceLines:
    path = tmp_path / "candidate.py"
    path.write_text(TEXT)
    return SourceLines(read(path))


def crash(kind: FailureKind = FailureKind.PROCESS_ENDED, verdict: Verdict = Verdict.CRASH) -> Decided:
    evidence = Evidence(failing_ranks=(0, 2), failure=Failure(kind, ENDED, rank=2))
    return Decided(verdict, Stage.CORRECTNESS, ENDED, evidence)


def test_fault_line_and_size_stand_in_the_verdict(lines: SourceLines) -> None:
    printed = f"hello\nCUDA emulator, rank 0: misaligned address, kernel work, {THREAD}, at ours.cu:3\nmore\n"
    told = with_fault(said_at(crash(), "size odd, 4 ranks"), printed, lines)
    assert told.detail == (
        f"rank 0: misaligned address, kernel work, {THREAD}, line 6 (ours.cu:3): *(int4*)(p + 1) = int4{{}}; "
        "(size odd, 4 ranks)"
    )
    assert told.evidence.failure == Failure(FailureKind.PROCESS_ENDED, ENDED, rank=0, name="misaligned address")
    assert FAULT_HINTS["misaligned address"] in hints_for(told.verdict, told.evidence, platform="cpu", backend="cuda")


def test_a_fault_without_a_line_and_of_another_name(lines: SourceLines) -> None:
    told = with_fault(crash(), f"CUDA emulator, rank 2: trap, kernel work, {THREAD}\n", lines)
    assert told.detail == f"rank 2: trap, kernel work, {THREAD}"
    assert told.evidence.failure == Failure(FailureKind.PROCESS_ENDED, ENDED, rank=2)


def test_a_rank_that_did_not_fail_is_not_named_by_what_is_printed(lines: SourceLines) -> None:
    told = with_fault(crash(), f"CUDA emulator, rank 3: illegal memory access, kernel work, {THREAD}\n", lines)
    assert told.evidence.failure is not None
    assert told.evidence.failure.rank == 2


@pytest.mark.parametrize(
    ("decided", "printed"),
    [
        (crash(), "illegal memory access\n"),
        (crash(), ""),
        (crash(FailureKind.MEMORY_LIMIT), f"CUDA emulator, rank 2: trap, kernel work, {THREAD}\n"),
        (crash(verdict=Verdict.DEADLOCK), f"CUDA emulator, rank 2: trap, kernel work, {THREAD}\n"),
        (crash(), f"CUDA emulator, rank 2: trap, kernel work, {THREAD}, at \x1b[31mx.cu:1\n"),
    ],
    ids=["other words", "nothing", "a limit", "another verdict", "a place that is no name of a file"],
)
def test_other_ends_stay_as_they_are(decided: Decided, printed: str, lines: SourceLines) -> None:
    assert with_fault(decided, printed, lines) == decided


def test_what_is_printed_brings_no_escape_sequences(lines: SourceLines) -> None:
    told = with_fault(crash(), f"CUDA emulator, rank 2: trap, kernel \x1b[31mwork, {THREAD}\n", lines)
    assert "work" in told.detail
    assert "\x1b" not in told.detail
