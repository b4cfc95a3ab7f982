"""NVSHMEM on a GPU that ranks share: our solutions, in CUDA and in Triton, are right by the judge and are custom code."""

from pathlib import Path

import pytest

from pkb.judge.session import evaluate_sizes
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


def are_right(path: Path, ranks: int, sizes: list[str]) -> None:
    """In one session: NVSHMEM is started once, and its heap serves all sizes."""
    problem = get(path.name.split("_", 1)[0])
    job = Job(path, Case(problem.stem, "virtual", ranks, sizes[0], problem.default_dtype, "quick"), timing=False)
    for found in evaluate_sizes(job, sizes):
        assert found.verdict is Verdict.CORRECT, f"{found.detail}\n{found.output_tail}"
        assert found.communication is Communication.CUSTOM


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_four_ranks(path: Path) -> None:
    are_right(path, 4, ["tiny", "odd"])


@pytest.mark.slow
@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_four_ranks_at_the_papers_size(path: Path) -> None:
    are_right(path, 4, ["paper"])


@pytest.mark.slow
@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_eight_ranks(path: Path) -> None:
    are_right(path, 8, ["tiny", "odd", "paper"])
