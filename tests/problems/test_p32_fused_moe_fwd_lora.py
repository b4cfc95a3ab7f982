"""Problem 32, expert-parallel MoE layer with LoRA adapters."""

import pytest
import torch
from harness import ModelTests, Spec
from model_moe import check_every_part_weighs, fused_moe, least_rows_cost, routed


class TestModel(ModelTests):
    spec = Spec(
        32,
        fused_moe,
        spoilt=1.2,
        silent_raises=True,
        refused=[("adapters", lambda _: {"lora_up_B": torch.zeros(24, 3)})],
    )


def test_inputs_weigh_every_part() -> None:
    check_every_part_weighs(TestModel.spec)


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_cost_is_a_minimum_for_every_call(world_size: int) -> None:
    least_rows_cost(32, world_size, routed, ways=2)
