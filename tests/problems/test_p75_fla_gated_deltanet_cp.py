"""Problem 75, gated DeltaNet: the recurrence over the whole sequence, position by position."""

import math

import torch
from harness import ModelTests, Spec
from model_recurrence import check_memory, delta_rule, unit
from on_ranks import Arguments, Outputs, all_arguments, joined


def gated_deltanet(ranks: list[Arguments]) -> list[Outputs]:
    q, k, v, gate, beta = (joined(ranks, name, 1) for name in ("q", "k", "v", "gate", "beta"))
    a_log, dt_bias = joined(ranks, "a_log", 0), joined(ranks, "dt_bias", 0)
    alpha = torch.exp(-a_log.exp() * torch.log1p(torch.exp(gate + dt_bias)))
    source = [head * q.shape[2] // v.shape[2] for head in range(v.shape[2])]
    q, k = unit(q)[:, :, source] / math.sqrt(q.shape[-1]), unit(k)[:, :, source]
    out = delta_rule(q, k, v, decay=alpha[..., None].expand_as(q), rate=beta)
    return [[block] for block in out.chunk(len(ranks), dim=1)]


class TestModel(ModelTests):
    spec = Spec(
        75,
        gated_deltanet,
        honest=0.85,
        spoilt=1.2,
        calls=(0, 1),
        widened_sizes=("odd",),
    )


def test_a_halo_of_a_few_positions_is_not_enough() -> None:
    check_memory(TestModel.spec, 0.0)


def test_a_rank_has_several_query_heads_to_choose_from() -> None:
    for size in ("tiny", "odd"):
        for world_size in (2, 3, 4):
            assert all_arguments(75, world_size, size, "bf16", 0)[0]["q"].shape[2] >= 2 * world_size
