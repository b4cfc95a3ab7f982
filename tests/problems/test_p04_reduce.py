"""Problem 4, reduce: the sum on the root, everything else as it was."""

import numpy as np
import pytest
import torch
from collective_checks import numbered, solve
from harness import ModelTests, Spec, ratio_of
from on_ranks import Arguments, Array, Worlds, arrays

from pkb.problems import get


def reduce(ranks: list[Arguments]) -> list[Array]:
    own = arrays(ranks, "tensor")
    return [np.stack(own).sum(axis=0) if r == ranks[r]["dst"] else own[r] for r in range(len(ranks))]


class TestModel(ModelTests):
    spec = Spec(
        4,
        reduce,
        worlds=(1, 2, 3, 4),
        ordered=True,
        calls=(1, 2),
        refused=[("dst is 2", lambda _: {"dst": 2})],
    )


def test_exact_off_the_root() -> None:
    """One unit in the last place is rounding on the root and somebody else's data anywhere else."""
    truth = torch.randn(64, generator=torch.Generator().manual_seed(1))
    output = torch.nextafter(truth, torch.tensor(torch.inf))

    def ratio(rank: int, output: torch.Tensor) -> float:
        return ratio_of(get(4), {"dst": 1}, rank, 2, [truth], [output], "fp32")

    assert ratio(1, output) <= 1
    assert ratio(0, output) > 1
    assert ratio(0, truth) <= 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_every_dtype_is_summed_as_itself(dtype: torch.dtype, world: Worlds) -> None:
    tensors = [numbered(r, (4, 3), dtype) for r in range(2)]
    outputs = world(2).call(solve, 4, [[t, 1] for t in tensors])
    assert torch.equal(outputs[0], tensors[0])
    assert torch.equal(outputs[1], tensors[0] + tensors[1])
