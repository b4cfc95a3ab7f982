"""Problem 73, vocabulary-parallel cross entropy: one softmax over the whole vocabulary."""

from functools import partial

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, all_arguments


def cross_entropy(ranks: list[Arguments], mistake: bool = False, ignored: float = 0.0) -> list[Outputs]:
    """Mistakes: a target outside the vocabulary is taken for the nearest entry in it; the sum of exponentials leaves out a
    share of each rank's columns, the last ones."""
    logits = torch.cat([a["vocab_parallel_logits"].double() for a in ranks], dim=-1)
    target = ranks[0]["target"]
    vocab = logits.shape[-1]
    inside = (target >= 0) & (target < vocab)
    assert mistake or not bool(inside.all())
    shifted = logits - logits.amax(-1, keepdim=True)
    columns = vocab // len(ranks)
    kept = torch.arange(vocab) % columns < columns - round(ignored * columns + 0.49)
    log_sum = (shifted.exp() * kept).sum(-1).log()
    predicted = shifted.gather(-1, target.clamp(0, vocab - 1)[..., None])[..., 0]
    loss = log_sum - (predicted if mistake else predicted * inside)
    return [[loss, part] for part in shifted.chunk(len(ranks), dim=-1)]


class TestModel(ModelTests):
    spec = Spec(
        73,
        cross_entropy,
        honest=0.7,
        widened_sizes=("odd",),
        exactness=1e-10,
        large_bytes=12e9,
        more_cases=((1, "odd", "fp32"),),
        mistakes={
            "3 % of a shard ignored": partial(cross_entropy, ignored=0.03),
            "targets outside clamped into the vocabulary": partial(cross_entropy, mistake=True),
        },
        mistake_cases=[(w, size, dtype) for w in (2, 4) for size in ("tiny", "odd") for dtype in ("fp32", "bf16")],
    )


def test_shifted_logits_are_required() -> None:
    ranks = all_arguments(73, 4, "tiny", "bf16", 0)
    truth = cross_entropy(ranks)
    lazy = [[own[0].to(torch.bfloat16), a["vocab_parallel_logits"]] for own, a in zip(truth, ranks, strict=True)]
    assert TestModel.spec.worst(ranks, truth, lazy, "bf16") > 1
