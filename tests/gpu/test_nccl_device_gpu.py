"""Our solutions with NCCL's device API on a GPU that ranks share: right by the judge at tiny and odd, custom, and timed."""

from dataclasses import replace
from pathlib import Path

import pytest

from pkb.judge.session import evaluate
from pkb.kit import nccl_device
from pkb.platforms import nccl
from pkb.problems import get
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.plan import plan
from pkb.types.verdict import Communication, Verdict

pytestmark = pytest.mark.gpu
SOLUTIONS = sorted((Path(__file__).parents[2] / "solutions").glob("*_nccl.py"))
TIMED = replace(plan("quick"), timing_rounds=2, calls_per_round=5, warmup_calls=3, verify_share=0.2)


def test_headers_lie_beside_the_library_that_ranks_load() -> None:
    library = nccl.suitable_nccl()
    assert library is not None, nccl.HOW_TO_GET_NCCL
    assert nccl_device.found(library).why_not == ""


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_it_is_correct(path: Path) -> None:
    problem = get(path.name.split("_", 1)[0])
    case = Case(problem.stem, "virtual", 4, "tiny", problem.default_dtype, "quick")
    found = evaluate(Job(path, case, timing=False))
    assert found.verdict is Verdict.CORRECT, f"{found.verdict.value}: {found.detail}"
    assert found.communication is Communication.CUSTOM


def test_it_is_timed() -> None:
    path = next(path for path in SOLUTIONS if path.name.startswith("01_"))
    found = evaluate(Job(path, Case("1", "virtual", 4, "paper", "bf16", "quick"), custom_plan=TIMED))
    assert found.verdict is Verdict.CORRECT, f"{found.verdict.value}: {found.detail}"
    assert found.communication is Communication.CUSTOM
    assert found.timing is not None
