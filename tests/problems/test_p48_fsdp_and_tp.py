"""Problem 48, feed-forward layer on a grid of FSDP and tensor parallelism: matrices put together."""

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, wide
from torch.nn import functional as F


def fsdp_and_tp(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    n_tp, n_fsdp = ranks[0]["n_tp"], ranks[0]["n_fsdp"]
    block = [[ranks[f * n_tp + t] for t in range(n_tp)] for f in range(n_fsdp)]
    x = torch.cat([wide(row[0]["x_local"]) for row in block])
    w1, w2 = (torch.cat([torch.cat([wide(a[n]) for a in row], 1) for row in block]) for n in ("W1_shard", "W2_shard"))
    w3 = torch.cat([torch.cat([wide(a["W3_shard"]) for a in row]) for row in block], 1)
    if mistake == "W3 gathered flat":
        w3 = torch.cat([wide(block[f][t]["W3_shard"]).reshape(-1) for t in range(n_tp) for f in range(n_fsdp)]).view_as(
            w3
        )
    z = F.silu(x @ w1) * (x @ w2)
    if mistake == "no TP sum":
        parts = [p @ q for p, q in zip(z.chunk(n_tp, 1), w3.chunk(n_tp), strict=True)]
        return [[parts[r % n_tp].chunk(n_fsdp)[r // n_tp]] for r in range(len(ranks))]
    return [[(z @ w3).chunk(n_fsdp)[r // n_tp]] for r in range(len(ranks))]


class TestModel(ModelTests):
    spec = Spec(
        48,
        fsdp_and_tp,
        every_rank=True,
        spoilt=1.2,
        large_bytes=20e9,
        mistaken_once=1.5,
        mistaken_always=1.5,
        mistake_cases=((4, "tiny", "bf16"), (4, "odd", "bf16")),
        mistakes={
            "no TP sum": lambda ranks: fsdp_and_tp(ranks, "no TP sum"),
            "W3 gathered flat": lambda ranks: fsdp_and_tp(ranks, "W3 gathered flat"),
        },
        refused=[(r"(\d|fit)", lambda _: {"n_tp": 2, "n_fsdp": 2})],
    )
