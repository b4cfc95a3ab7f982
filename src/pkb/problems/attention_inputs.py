"""Queries and scales of the attention problems: some scores are large, as those of trained heads are."""

import torch

from pkb.problems.draw import Draw

SHARP_QUERIES = 8
"""One in this many."""
SHARPNESS = 4.0
"""Scores of a sharp query reach 20 and more. Where q and k come out of a projection that is rounded to bf16 (39, 55, 56), the
error of a score grows with it, and scores stay below 10: there an honest kernel would fail with larger ones."""
CALLS_WITH_A_SCALE = 0.5


def sharp_queries(draw: Draw, shape: tuple[int, ...]) -> torch.Tensor:
    """Normal queries (..., head size), some of them several times as large: a softmax that clamps scores, or leaves out the
    maximum, shows."""
    which = draw.integers("sharp queries", (*shape[:-1], 1), 0, SHARP_QUERIES)
    # A table, since a comparison on shapes alone (how much an argument takes) imports torch's compiler, as in plain_sums.py.
    scales = torch.tensor([SHARPNESS] + [1.0] * (SHARP_QUERIES - 1), dtype=draw.dtype, device=which.device)
    return draw.normal("q", shape).mul_(scales[which])  # a power of two: exact


def draw_scale(draw: Draw) -> float | None:
    """The same on all ranks: None, which stands for 1 / sqrt(head size), or a number near it."""
    source = draw.random("softmax scale", key="all")
    if source.random() >= CALLS_WITH_A_SCALE:
        return None
    return draw.size["head_size"] ** -0.5 * source.uniform(0.5, 1.25)
