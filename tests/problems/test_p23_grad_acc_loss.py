"""Problem 23, loss normalisation for gradient accumulation: sums over all ranks' tokens."""

import math

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, all_arguments


def grad_acc_loss(ranks: list[Arguments]) -> list[Outputs]:
    counts = [int(a["local_valid_tokens"]) for a in ranks]
    total = sum(counts)
    assert all(int(a["global_valid_tokens"]) == total for a in ranks)
    loss_sum = math.fsum(n * float(a["loss"]) for n, a in zip(counts, ranks, strict=True) if n)
    outputs = []
    for n, a in zip(counts, ranks, strict=True):
        slope = float(a["grad_normalized_loss"]) / total
        slope += 0.0 if a["grad_loss_sum"] is None else float(a["grad_loss_sum"])
        outputs.append([torch.tensor(v, dtype=torch.float64) for v in (loss_sum / total, loss_sum, slope * n)])
    return outputs


class TestModel(ModelTests):
    spec = Spec(
        23,
        grad_acc_loss,
    )


def test_some_ranks_have_no_tokens_and_some_calls_no_second_gradient() -> None:
    ranks = [all_arguments(23, 4, "tiny", "fp32", call) for call in range(40)]
    empty = [a for call in ranks for a in call if int(a["local_valid_tokens"]) == 0]
    assert 10 <= len(empty) <= 30
    assert not any(bool(a["loss"].isfinite()) for a in empty)
    assert 3 <= sum(a[0]["grad_loss_sum"] is None for a in ranks) <= 20
