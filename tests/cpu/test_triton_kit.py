"""The kit's Triton side, judged: a candidate that uses all of it, and one whose barriers are gone."""

from pathlib import Path

import pytest

from pkb.judge.session import evaluate
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.verdict import Communication, Verdict

CANDIDATE = Path(__file__).parent / "triton_kit" / "all_reduce.py"
MEETS = "    triton_kit.barrier(counts, program, rank, world)  # all have published\n"


@pytest.mark.parametrize(("size", "dtype"), [("tiny", "bf16"), ("odd", "fp32")])
def test_an_all_reduce_by_the_kit_is_correct(size: str, dtype: str) -> None:
    pytest.importorskip("triton")
    found = evaluate(Job(CANDIDATE, Case("1", "cpu", 3 if size == "odd" else 2, size, dtype, "quick"), timing=False))
    assert found.verdict is Verdict.CORRECT, found.detail
    assert found.communication is Communication.CUSTOM


def test_without_its_barrier_it_is_not(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    text = CANDIDATE.read_text()
    assert text.count(MEETS) == 1
    broken = tmp_path / "unmet.py"
    broken.write_text(text.replace(MEETS, ""))
    found = evaluate(Job(broken, Case("1", "cpu", 2, "tiny", "bf16", "quick"), timing=False))
    assert found.verdict in (Verdict.WRONG, Verdict.RACE), found.detail
