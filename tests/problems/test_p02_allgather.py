"""Problem 2, all-gather: the tensors of all ranks, stacked."""

import numpy as np
import pytest
import torch
from collective_checks import numbered, solve
from harness import ModelTests, Spec
from on_ranks import Arguments, Array, Worlds, arrays


def allgather(ranks: list[Arguments]) -> list[Array]:
    return [np.stack(arrays(ranks, "tensor"))] * len(ranks)


class TestModel(ModelTests):
    spec = Spec(
        2,
        allgather,
        worlds=(1, 2, 3, 4),
        ordered=True,
        calls=(1, 2),
    )


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5, 2)])
def test_any_shape(shape: tuple[int, ...], world: Worlds) -> None:
    tensors = [numbered(r, shape) for r in range(3)]
    for output in world(3).call(solve, 2, [[t] for t in tensors]):
        assert torch.equal(output, torch.stack(tensors))
