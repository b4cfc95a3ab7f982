"""Problem 49, MoE layer, one expert a rank, token by token."""

import torch
from harness import ModelTests, Spec
from model_moe import moe
from on_ranks import all_arguments


class TestModel(ModelTests):
    spec = Spec(
        49,
        moe,
        silent_raises=True,
        every_rank=True,
        spoilt=1.2,
        large_bytes=20e9,
        mistaken_once=1.5,
        mistaken_always=1.5,
        mistake_cases=((4, "tiny", "bf16"), (4, "odd", "bf16")),
        mistakes={
            "weights normalised": lambda ranks: moe(ranks, "weights normalised"),
            "no layer bias": lambda ranks: moe(ranks, "no layer bias"),
            "own expert": lambda ranks: moe(ranks, "own expert"),
        },
        refused=[(r"(\d|fit)", lambda _: {"top_k": 3})],
    )


def test_experts_are_shared_as_the_system_shares_them() -> None:
    ranks = all_arguments(49, 8, "odd", "fp32", 0)
    assert all(torch.equal(ranks[0]["gate_weight"], a["gate_weight"]) for a in ranks)
    weights = [a["gate_proj"].weight for a in ranks]
    assert [torch.equal(weights[0], w) for w in weights] == [rank == 0 for rank in range(8)]
    assert ranks[0]["num_experts"] == 8
