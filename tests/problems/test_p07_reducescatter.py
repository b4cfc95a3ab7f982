"""Problem 7, reduce-scatter: one sum, a block of it a rank."""

import numpy as np
import pytest
import torch
from collective_checks import numbered, solve
from harness import ModelTests, Spec
from on_ranks import Arguments, Array, Worlds, arrays


def reducescatter(ranks: list[Arguments]) -> list[Array]:
    total = np.stack(arrays(ranks, "tensor")).sum(axis=0)
    return [total.reshape(len(ranks), -1, total.shape[1])[r] for r in range(len(ranks))]


class TestModel(ModelTests):
    spec = Spec(
        7,
        reducescatter,
        worlds=(1, 2, 3, 4),
        ordered=True,
        calls=(1, 2),
        refused=[("2 equal blocks", lambda _: {"tensor": torch.ones(3, 3)})],
    )


def test_further_axes_are_kept(world: Worlds) -> None:
    tensors = [numbered(r, (4, 3, 2)) for r in range(2)]
    outputs = world(2).call(solve, 7, [[t] for t in tensors])
    total = tensors[0] + tensors[1]
    assert torch.equal(outputs[0], total[:2])
    assert torch.equal(outputs[1], total[2:])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_every_dtype_is_summed_as_itself(dtype: torch.dtype, world: Worlds) -> None:
    tensors = [numbered(r, (4, 3), dtype) for r in range(2)]
    outputs = world(2).call(solve, 7, [[t] for t in tensors])
    assert outputs[1].dtype == dtype
    assert torch.equal(outputs[1], (tensors[0] + tensors[1])[2:])
