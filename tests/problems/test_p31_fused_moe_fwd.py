"""Problem 31, expert-parallel MoE layer: every expert on every token, weighted."""

import pytest
from harness import ModelTests, Spec
from model_moe import check_every_part_weighs, fused_moe, least_rows_cost, routed


class TestModel(ModelTests):
    spec = Spec(
        31,
        fused_moe,
        silent_raises=True,
        refused=[("of 7 experts", lambda _: {"num_experts": 7})],
    )


def test_inputs_weigh_every_part() -> None:
    check_every_part_weighs(TestModel.spec)


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_cost_is_a_minimum_for_every_call(world_size: int) -> None:
    least_rows_cost(31, world_size, routed, ways=2)
