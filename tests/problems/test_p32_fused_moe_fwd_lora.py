"""Problem 32, expert-parallel MoE layer with LoRA adapters."""

import pytest
import torch
from harness import ModelTests, Spec
from model_moe import check_every_part_weighs, fused_moe, least_rows_cost, routed

from pkb.problems import get


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


def test_what_cannot_run_says_why() -> None:
    assert "8 experts" in (get(32).why_not("paper", 3, "bf16") or "")
    assert get(32).why_not("odd", 3, "bf16") is None


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_cost_is_a_minimum_for_every_call(world_size: int) -> None:
    least_rows_cost(32, world_size, routed, ways=2)
