"""Problem 24, load-balancing loss, token by token."""

import math

import numpy as np
import pytest
import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, all_arguments


def load_balancing_loss(ranks: list[Arguments]) -> list[Outputs]:
    """By hand, token by token."""
    losses = []
    for a in ranks:
        layers = a["gate_logits"] if isinstance(a["gate_logits"], tuple) else (a["gate_logits"],)
        tokens = len(layers[0])
        keep = [1] * tokens if a["attention_mask"] is None else a["attention_mask"].flatten().tolist()
        chosen, mass = np.zeros(a["num_experts"]), np.zeros(a["num_experts"])
        for layer in layers:
            for row, counted in zip(layer.double().numpy(), keep, strict=True):
                if counted:
                    chosen[np.argsort(-row)[: a["top_k"]]] += 1
                    mass += np.exp(row) / np.exp(row).sum()
        valid = len(layers) * sum(keep)
        losses.append(a["num_experts"] * float(chosen @ mass) / valid**2)
    return [[torch.tensor(math.fsum(losses) / len(losses), dtype=torch.float64)] for _ in ranks]


class TestModel(ModelTests):
    spec = Spec(
        24,
        load_balancing_loss,
        results=(torch.float32,),
        refused=[
            ("top 2 of 7", lambda _: {"num_experts": 7}),
            ("mask of 5", lambda _: {"attention_mask": torch.ones(1, 5)}),
        ],
    )


def test_calls_come_with_and_without_a_mask() -> None:
    ranks = [all_arguments(24, 2, "tiny", "fp32", call) for call in range(20)]
    assert sum(a[0]["attention_mask"] is None for a in ranks) == 10


@pytest.mark.parametrize("size", ["tiny", "odd"])
@pytest.mark.parametrize("world_size", [2, 4])
def test_a_mask_that_is_ignored_shows(size: str, world_size: int) -> None:
    """Of padding that is routed like all else, the loss says nothing that bf16's tolerance would notice."""
    bf16_tolerance = 2 * 2**-7
    for call in range(12):
        ranks = all_arguments(24, world_size, size, "bf16", call)
        if ranks[0]["attention_mask"] is not None:
            truth = load_balancing_loss(ranks)[0][0]
            without = load_balancing_loss([{**a, "attention_mask": None} for a in ranks])[0][0]
            assert abs(without - truth) > 4 * bf16_tolerance * truth
