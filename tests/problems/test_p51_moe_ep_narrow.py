"""Problem 51, MoE layer in blocks of ranks with the same experts, token by token."""

import torch
from harness import ModelTests, Spec
from model_moe import moe
from on_ranks import all_arguments


class TestModel(ModelTests):
    spec = Spec(
        51,
        moe,
        worlds=(4,),
        silent_raises=True,
        every_rank=True,
        spoilt=1.2,
        large_bytes=20e9,
        mistaken_once=1.5,
        mistaken_always=1.5,
        mistake_cases=((4, "tiny", "bf16"), (4, "odd", "bf16")),
        mistakes={
            "no layer bias": lambda ranks: moe(ranks, "no layer bias"),
            "own expert": lambda ranks: moe(ranks, "own expert"),
        },
    )


def test_experts_are_shared_as_the_system_shares_them() -> None:
    ranks = all_arguments(51, 8, "odd", "fp32", 0)
    assert all(torch.equal(ranks[0]["gate_weight"], a["gate_weight"]) for a in ranks)
    weights = [a["gate_proj"].weight for a in ranks]
    assert [torch.equal(weights[0], w) for w in weights] == [rank in (0, 4) for rank in range(8)]
    assert ranks[0]["num_experts"] == 4
