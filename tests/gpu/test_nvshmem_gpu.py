"""NVSHMEM on a GPU that ranks share: our solutions, in CUDA and in Triton, are right by the judge and are custom code."""

from pathlib import Path

import pytest

from pkb.judge.session import evaluate
from pkb.kit import nvshmem
from pkb.problems import get
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.verdict import Communication, Verdict

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(isinstance(nvshmem.found(), str), reason=str(nvshmem.found())),
]
SOLUTIONS = sorted((Path(__file__).parents[2] / "solutions").glob("*_nvshmem*.py"))


def is_right(path: Path, ranks: int, size: str) -> None:
    problem = get(path.name.split("_", 1)[0])
    job = Job(path, Case(problem.stem, "virtual", ranks, size, problem.default_dtype, "quick"), timing=False)
    found = evaluate(job)
    assert found.verdict is Verdict.CORRECT, f"{found.detail}\n{found.output_tail}"
    assert found.communication is Communication.CUSTOM


@pytest.mark.parametrize("size", ["tiny", "odd"])
@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_four_ranks(path: Path, size: str) -> None:
    is_right(path, 4, size)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_the_papers_size(path: Path, ranks: int) -> None:
    is_right(path, ranks, "paper")


@pytest.mark.slow
@pytest.mark.parametrize("size", ["tiny", "odd"])
@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_eight_ranks(path: Path, size: str) -> None:
    is_right(path, 8, size)
