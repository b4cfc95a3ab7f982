"""Problem 8, all-to-all: source and destination change places."""

import numpy as np
import torch
from collective_checks import numbered, solve
from harness import ModelTests, Spec
from on_ranks import Arguments, Array, Worlds, arrays


def alltoall(ranks: list[Arguments]) -> list[Array]:
    everything = np.stack(arrays(ranks, "tensor"))  # source, destination, M, N
    return list(everything.swapaxes(0, 1))


class TestModel(ModelTests):
    spec = Spec(
        8,
        alltoall,
        worlds=(1, 2, 3, 4),
        ordered=True,
        calls=(1, 2),
        refused=[("2 equal slices", lambda _: {"tensor": torch.ones(3, 3)})],
    )


def test_blocks_of_several_rows(world: Worlds) -> None:
    tensors = [numbered(r, (6, 5)) for r in range(2)]
    outputs = world(2).call(solve, 8, [[t] for t in tensors])
    assert torch.equal(outputs[0], torch.cat([tensors[0][:3], tensors[1][:3]]))
    assert torch.equal(outputs[1], torch.cat([tensors[0][3:], tensors[1][3:]]))
