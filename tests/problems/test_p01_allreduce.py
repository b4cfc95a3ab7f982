"""Problem 1, all-reduce: one sum over all ranks."""

import numpy as np
import pytest
import torch
from collective_checks import numbered, solve
from harness import ModelTests, Spec
from on_ranks import Arguments, Array, Worlds, arrays


def allreduce(ranks: list[Arguments]) -> list[Array]:
    return [np.stack(arrays(ranks, "tensor")).sum(axis=0)] * len(ranks)


class TestModel(ModelTests):
    spec = Spec(
        1,
        allreduce,
        worlds=(1, 2, 3, 4),
        ordered=True,
        calls=(1, 2),
    )


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5, 2)])
def test_any_shape(shape: tuple[int, ...], world: Worlds) -> None:
    tensors = [numbered(r, shape) for r in range(3)]
    for output in world(3).call(solve, 1, [[t] for t in tensors]):
        assert torch.equal(output, tensors[0] + tensors[1] + tensors[2])
