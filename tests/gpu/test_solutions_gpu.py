"""Our own kernels on a GPU: right by the judge, without the library, at the sizes and numbers of ranks they claim."""

from pathlib import Path

import pytest

from pkb.judge.session import evaluate
from pkb.problems import get
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.verdict import Communication, Verdict

pytestmark = pytest.mark.gpu
SOLUTIONS = sorted((Path(__file__).parents[2] / "solutions").glob("*_cuda.py"))


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("size", ["tiny", "odd", "paper"])
@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_it_is_correct(path: Path, size: str, ranks: int) -> None:
    problem = get(path.name.split("_", 1)[0])
    job = Job(path, Case(problem.stem, "virtual", ranks, size, problem.default_dtype, "quick"), timing=False)
    found = evaluate(job)
    assert found.verdict is Verdict.CORRECT, found.detail
    assert found.communication is Communication.CUSTOM
