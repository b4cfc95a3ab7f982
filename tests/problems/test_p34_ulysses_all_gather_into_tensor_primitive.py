"""Problem 34, Ulysses all-gather into one tensor."""

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, joined


def gather_rows(ranks: list[Arguments]) -> list[Outputs]:
    return [[joined(ranks, "x")]] * len(ranks)


class TestModel(ModelTests):
    spec = Spec(
        34,
        gather_rows,
        honest=0.75,
        zeros=10.0,
        refused=[("", lambda _: {"x": torch.tensor(1.0)})],
    )
