"""Problem 43, Adam on a shard and all-gather of the parameters."""

from typing import Any

import torch
from harness import ModelTests, Spec
from model_adam import adam, check_honest_rounding
from on_ranks import Arguments, Outputs


def adam_gather(ranks: list[Arguments], *, without: str = "", **changed: Any) -> list[Outputs]:
    parts = []
    for a in ranks:
        given = a | {name: torch.zeros_like(a[name]) for name in without.split()}
        parts.append(adam(a, a["master_shard"], given["grad_shard"], given["exp_avg"], given["exp_avg_sq"], **changed))
    return [[torch.cat([part[0] for part in parts])]] * len(ranks)


class TestModel(ModelTests):
    spec = Spec(
        43,
        adam_gather,
        honest=0.75,
        zeros=10.0,
        widened_sizes=("odd",),
        exactness=1e-11,
        mistake_calls=tuple(range(6)),
        mistaken_once=5.0,
        mistaken_always=2.0,
        mistakes={
            "no update": lambda ranks: adam_gather(ranks, lr=0.0),
            "no gradient": lambda ranks: adam_gather(ranks, without="grad_shard"),
            "no first moment": lambda ranks: adam_gather(ranks, without="exp_avg"),
            "no second moment": lambda ranks: adam_gather(ranks, without="exp_avg_sq"),
            "no bias correction": lambda ranks: adam_gather(ranks, step=10**6),
            "no eps": lambda ranks: adam_gather(ranks, eps=0.0),
        },
        refused=[("", lambda _: {"exp_avg_sq": torch.ones(9)}), ("", lambda _: {"step": 0})],
    )


def test_honest_rounding_keeps_a_distance() -> None:
    check_honest_rounding(TestModel.spec)
