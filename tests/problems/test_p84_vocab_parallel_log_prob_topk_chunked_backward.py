"""Problem 84, gradients of log-probabilities after top-k and top-p: rows filtered by hand."""

import math

import torch
from harness import ModelTests, Spec
from model_sampling_filters import filtered_rows
from on_ranks import Arguments, Outputs


def log_prob_backward(ranks: list[Arguments]) -> list[Outputs]:
    upstream = ranks[0]["grad_output"].double().flatten().tolist()
    rows, targets, sets = filtered_rows(ranks)
    gradient = torch.zeros(len(rows), len(rows[0]), dtype=torch.float64)
    for t, (row, target, kept) in enumerate(zip(rows, targets, sets, strict=True)):
        total = math.fsum(math.exp(row[i]) for i in kept)
        for i in kept:
            gradient[t, i] = upstream[t] * ((i == target) - math.exp(row[i]) / total)
    whole = gradient.view(*ranks[0]["target"].shape, -1)
    return [[block] for block in whole.chunk(len(ranks), dim=-1)]


class TestModel(ModelTests):
    spec = Spec(
        84,
        log_prob_backward,
        results=(torch.float32,),
        honest=0.85,
        spoilt=1.2,
        calls=(0, 1),
        widened_sizes=("odd",),
    )
