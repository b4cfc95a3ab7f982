"""What the collectives and the plainest GEMMs promise beyond their usual inputs: views, roots, exactness."""

from typing import Any

import torch
from on_ranks import Worlds, all_arguments

from pkb.problems import get
from pkb.problems.compare import Exact


def numbered(rank: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small whole numbers: every sum is exact in every dtype."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(-8, 9, shape, generator=generator).to(dtype)


def solve(rank: int, world_size: int, number: int, per_rank: list[list[Any]]) -> torch.Tensor:
    """On a rank: the reference on these positional arguments."""
    return get(number).reference(*per_rank[rank])


def solve_transposed(rank: int, world_size: int, number: int, per_rank: list[torch.Tensor]) -> torch.Tensor:
    """On a rank: with the same values as a view that is not contiguous."""
    return get(number).reference(per_rank[rank].mT.contiguous().mT)


def check_views(world: Worlds, number: int) -> None:
    """A view that is not contiguous is taken by value."""
    tensors = [numbered(r, (4, 6)) for r in range(2)]
    plain = world(2).call(solve, number, [[t] for t in tensors])
    viewed = world(2).call(solve_transposed, number, tensors)
    assert all(torch.equal(a, b) for a, b in zip(plain, viewed, strict=True))


def check_exact(number: int, *, exact: bool) -> None:
    """The comparison is exact, and the truth the reference itself, where nothing is computed and nowhere else."""
    problem = get(number)
    assert (problem.truth == "native") == (problem.compare == Exact()) == exact


def check_root_varies(number: int, root: str) -> None:
    """The root is the same on all ranks and another one from call to call."""
    seen = set()
    for call in range(24):
        (one,) = {arguments[root] for arguments in all_arguments(number, 4, "tiny", "fp32", call)}
        seen.add(one)
    assert seen == {0, 1, 2, 3}
