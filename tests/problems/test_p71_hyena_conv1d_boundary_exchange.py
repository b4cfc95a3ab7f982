"""Problem 71, causal convolution across chunks: one sequence, lag by lag."""

from functools import partial

import torch
from harness import ModelTests, Spec
from model_zigzag import in_order, zigzag
from on_ranks import Arguments, Outputs


def causal_convolution(ranks: list[Arguments], mistake: bool = False) -> list[Outputs]:
    """Mistake: chunks begin with silence instead of their neighbour's last samples."""
    weight = ranks[0]["weight"].double()[:, 0]
    kernel = weight.shape[1]

    def convolve(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x)
        for lag in range(kernel):
            y[..., lag:] += weight[:, kernel - 1 - lag, None] * x[..., : x.shape[-1] - lag]
        return y

    if mistake:
        return [[torch.cat([convolve(half) for half in a["x"].double().chunk(2, dim=-1)], dim=-1)] for a in ranks]
    whole = convolve(in_order([a["x"].double() for a in ranks]))
    return [[part] for part in zigzag(whole, len(ranks))]


class TestModel(ModelTests):
    spec = Spec(
        71,
        causal_convolution,
        honest=0.7,
        widened_sizes=("odd",),
        exactness=1e-10,
        large_bytes=12e9,
        more_cases=((1, "odd", "fp32"),),
        mistakes={"chunks begin with silence": partial(causal_convolution, mistake=True)},
        mistake_cases=[(w, size, dtype) for w in (2, 4) for size in ("tiny", "odd") for dtype in ("fp32", "bf16")],
    )
