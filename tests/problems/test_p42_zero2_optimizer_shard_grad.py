"""Problem 42, one ZeRO-2 step: the whole row of parameters updated, and cut."""

import torch
from harness import ModelTests, Spec
from model_adam import zero


class TestModel(ModelTests):
    spec = Spec(
        42,
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
            "no eps": lambda ranks: zero(ranks, eps=0.0),
            "no bias correction": lambda ranks: zero(ranks, step=10**6),
        },
        refused=[("", lambda _: {"exp_avg_part": torch.ones(3), "exp_avg_sq_part": torch.ones(3)})],
    )
