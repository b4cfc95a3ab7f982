"""Problem 41, one ZeRO-1 step: the whole row of parameters updated, and cut."""

import torch
from harness import ModelTests, Spec
from model_adam import check_honest_rounding, zero


class TestModel(ModelTests):
    spec = Spec(
        41,
        zero,
        honest=0.75,
        zeros=10.0,
        widened_sizes=("odd",),
        exactness=1e-11,
        mistake_calls=tuple(range(6)),
        mistaken_once=5.0,
        mistaken_always=2.0,
        mistakes={
            "own gradients": lambda ranks: zero(ranks, own="g"),
            "own parameters": lambda ranks: zero(ranks, own="p"),
            "summed gradients": lambda ranks: zero(ranks, mean=False),
            "no update": lambda ranks: zero(ranks, lr=0.0),
        },
        refused=[("", lambda _: {"exp_avg_part": torch.ones(3), "exp_avg_sq_part": torch.ones(3)})],
    )


def test_honest_rounding_keeps_a_distance() -> None:
    check_honest_rounding(TestModel.spec)
