"""Problem 30, gradients of shared LoRA matrices: three sums, in place."""

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, Worlds, ready_arguments

from pkb.problems import get


def lora_backward(ranks: list[Arguments]) -> list[Outputs]:
    sums = [sum(a[name].double() for a in ranks) for name in list(ranks[0])[:3]]
    return [[*sums, *sums] for _ in ranks]


class TestModel(ModelTests):
    spec = Spec(
        30,
        lora_backward,
        returns_arguments=True,
        refused=[("must be contiguous", lambda _: {"grad_fc2_lora_B": torch.zeros(4, 48).t()})],
    )


def returns_its_arguments(rank: int, world_size: int) -> bool:
    """On a rank: whether what is returned are the argument tensors themselves."""
    arguments = ready_arguments(30, rank, world_size, "tiny", "fp32", 0)
    output = get(30).reference(**arguments)
    return all(a is b for a, b in zip(output, arguments.values(), strict=False))


def test_the_arguments_themselves_are_returned(world: Worlds) -> None:
    assert world(2).call(returns_its_arguments) == [True, True]
