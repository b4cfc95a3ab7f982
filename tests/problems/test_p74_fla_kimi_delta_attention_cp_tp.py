"""Problem 74, Kimi delta attention: the recurrence over the whole sequence, position by position."""

import math

import torch
from harness import ModelTests, Spec
from model_recurrence import check_memory, delta_rule, unit
from on_ranks import Arguments, Outputs, joined


def kimi_delta_attention(ranks: list[Arguments]) -> list[Outputs]:
    tp = 2 if len(ranks) >= 4 and len(ranks) % 2 == 0 else 1
    total: torch.Tensor | None = None
    for member in range(tp):
        own = ranks[member::tp]
        q, k, v, g, beta = (joined(own, name, 1) for name in ("q", "k", "v", "g", "beta"))
        bias, speed = own[0]["dt_bias"].double().view(q.shape[2], q.shape[3]), own[0]["a_log"].double().exp()
        decay = torch.exp(-5 / (1 + torch.exp(-speed[:, None] * (g + bias))))
        out = delta_rule(unit(q) / math.sqrt(q.shape[-1]), unit(k), v, decay=decay, rate=1 / (1 + torch.exp(-beta)))
        total = out if total is None else total + out
    assert total is not None
    return [[block] for block in total.chunk(len(ranks) // tp, dim=1) for _ in range(tp)]


class TestModel(ModelTests):
    spec = Spec(
        74,
        kimi_delta_attention,
        honest=0.85,
        spoilt=1.2,
        calls=(0, 1),
        widened_sizes=("odd",),
    )


def test_a_halo_of_a_few_positions_is_not_enough() -> None:
    check_memory(TestModel.spec, -100.0)
