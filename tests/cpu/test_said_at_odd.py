"""A failure at the odd size, which nobody asked for, says that it was there."""

from pathlib import Path

import pytest

from pkb.judge.session import evaluate
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.verdict import Verdict

CANDIDATE = """
import os

import torch.distributed as dist


def solution(tensor):
    if tensor.numel() % 2:
        {failure}
    total = tensor.clone()
    dist.all_reduce(total)
    return total
"""


@pytest.mark.parametrize(
    ("failure", "verdict", "said"),
    [
        (
            'raise ValueError("an even number of elements only")',
            Verdict.RUNTIME_ERROR,
            "raised ValueError: an even number",
        ),
        ("os.abort()", Verdict.CRASH, "was ended by SIGABRT"),
    ],
)
def test_the_size_is_named(failure: str, verdict: Verdict, said: str, tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_text(CANDIDATE.format(failure=failure))
    result = evaluate(Job(path, Case("1", "cpu", 2, "tiny", "bf16", "quick")))
    assert result.verdict is verdict
    assert said in result.detail
    assert result.detail.endswith("(size odd, 2 ranks)")
