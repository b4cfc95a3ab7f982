"""Problem 58, SigLIP loss: one matrix of logits with all texts."""

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, all_arguments, joined, wide
from torch.nn import functional as F


def siglip_loss(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    outputs = []
    for rank, a in enumerate(ranks):
        images, texts = wide(a["image_features"]), joined(ranks, "text_features")
        b = len(images)
        logits = a["logit_scale"] * images @ texts.T + a["logit_bias"]
        y = -torch.ones_like(logits)
        for block in range(len(ranks)):
            if block == rank or mistake == "positives in every block":
                y[:, block * b : (block + 1) * b].fill_diagonal_(1)
        losses = F.softplus(-y * logits).sum() / (b * len(ranks) if mistake == "mean over all texts" else b)
        if mistake == "own block, W times":
            own = slice(rank * b, (rank + 1) * b)
            losses = F.softplus(-y[:, own] * logits[:, own]).sum() / b * len(ranks)
        outputs.append([losses])
    return outputs


class TestModel(ModelTests):
    spec = Spec(
        58,
        siglip_loss,
        every_rank=True,
        spoilt=1.2,
        large_bytes=20e9,
        mistaken_once=1.5,
        mistaken_always=1.5,
        mistake_cases=((4, "tiny", "bf16"), (4, "odd", "bf16")),
        mistakes={
            "mean over all texts": lambda ranks: siglip_loss(ranks, "mean over all texts"),
            "own block, W times": lambda ranks: siglip_loss(ranks, "own block, W times"),
        },
        refused=[(r"(\d|fit)", lambda _: {"text_features": torch.zeros(3, 3)})],
    )


def test_positives_in_every_block_are_refused() -> None:
    """Of a few hundred logits they change a few: in bf16 not every call shows it."""
    spec, margins = TestModel.spec, []
    for call in range(6):
        ranks = spec.arguments(4, "tiny", "bf16", call)
        wrong = spec.native(siglip_loss(ranks, "positives in every block"), "bf16")
        margins.append(spec.worst(ranks, siglip_loss(ranks), wrong, "bf16"))
    assert max(margins) > 3, margins


def test_rounding_scale_and_bias_to_the_dtype_changes_nothing() -> None:
    """As torch on a CPU does, and a GEMM with a bias: at `paper` such a bias moved the loss by nearly all that is tolerated."""
    for call in range(8):
        arguments = all_arguments(58, 2, "paper", "bf16", call)[0]
        for name in ("logit_scale", "logit_bias"):
            assert float(torch.tensor(arguments[name], dtype=torch.bfloat16)) == arguments[name], name
