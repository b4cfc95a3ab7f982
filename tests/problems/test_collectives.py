"""What the collectives and the plainest GEMMs promise beyond their usual inputs: views, roots, exactness."""

import pytest
import torch
from collective_checks import numbered, solve
from on_ranks import Worlds, all_arguments

from pkb.problems import get
from pkb.problems.compare import Exact


def solve_transposed(rank: int, world_size: int, number: int, per_rank: list[torch.Tensor]) -> torch.Tensor:
    """On a rank: with the same values as a view that is not contiguous."""
    return get(number).reference(per_rank[rank].mT.contiguous().mT)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 6, 7, 8])
def test_a_view_that_is_not_contiguous_is_taken_by_value(number: int, world: Worlds) -> None:
    tensors = [numbered(r, (4, 6)) for r in range(2)]
    plain = world(2).call(solve, number, [[t] for t in tensors])
    viewed = world(2).call(solve_transposed, number, tensors)
    assert all(torch.equal(a, b) for a, b in zip(plain, viewed, strict=True))


@pytest.mark.parametrize(
    ("number", "exact"), [*((n, True) for n in (2, 3, 5, 6, 8)), *((n, False) for n in (1, 4, 7, 13, 16))]
)
def test_comparison_is_exact_where_nothing_is_computed(number: int, exact: bool) -> None:
    """And the truth is the reference itself there; nowhere else."""
    problem = get(number)
    assert (problem.truth == "native") == (problem.compare == Exact()) == exact


@pytest.mark.parametrize(("number", "root"), [(3, "src"), (4, "dst"), (5, "src"), (6, "dst")])
def test_the_root_agrees_between_ranks_and_varies_between_calls(number: int, root: str) -> None:
    seen = set()
    for call in range(24):
        (one,) = {arguments[root] for arguments in all_arguments(number, 4, "tiny", "fp32", call)}
        seen.add(one)
    assert seen == {0, 1, 2, 3}
