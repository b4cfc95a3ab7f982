"""Problem 46, GEMV for decoding: one product with all columns, and its bias."""

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, joined, wide


def gemv_decode(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    hidden = wide(ranks[0]["hidden_states"])
    logits = hidden @ joined(ranks, "weight_shard").T
    if mistake != "no bias":
        logits = logits + joined(ranks, "bias_shard")
    if mistake == "flat gather":
        logits = torch.cat([block.reshape(-1) for block in logits.chunk(len(ranks), dim=1)]).view_as(logits)
    return [[logits] for _ in ranks]


class TestModel(ModelTests):
    spec = Spec(
        46,
        gemv_decode,
        every_rank=True,
        spoilt=1.2,
        large_bytes=20e9,
        mistaken_once=1.5,
        mistaken_always=1.5,
        mistake_cases=((4, "tiny", "bf16"), (4, "odd", "bf16")),
        mistakes={
            "no bias": lambda ranks: gemv_decode(ranks, "no bias"),
            "flat gather": lambda ranks: gemv_decode(ranks, "flat gather"),
        },
        refused=[(r"(\d|fit)", lambda _: {"bias_shard": torch.zeros(3)})],
    )
