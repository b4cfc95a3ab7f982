"""Problem 72, Hyena mixer: one circular convolution, lag by lag."""

from functools import partial

import torch
from harness import ModelTests, Spec
from model_zigzag import in_order, zigzag
from on_ranks import Arguments, Outputs, all_arguments


def hyena(ranks: list[Arguments], mistake: bool = False) -> list[Outputs]:
    """A direct circular convolution, lag by lag. Mistake: the zigzag is not undone."""
    first = ranks[0]
    zig = first["with_zigzag_splitting"] and not mistake

    def whole(name: str) -> torch.Tensor:
        parts = [a[name].double() for a in ranks]
        return in_order(parts) if zig else torch.cat(parts, dim=-1)

    x1, z = whole("x1_seq"), whole("x2_seq") * whole("v_seq")
    length = z.shape[-1]
    padded = torch.cat([z, torch.zeros_like(z)], dim=-1)
    h = first["h"].double().repeat_interleave(first["group_dim"], dim=0)
    y = z * first["conv_bias"].double()[:, None]
    for lag in range(min(h.shape[1], 2 * length)):
        y = y + h[:, lag, None] * padded.roll(lag, dims=-1)[..., :length]
    out = x1 * y
    parts = zigzag(out, len(ranks)) if zig else list(out.chunk(len(ranks), dim=-1))
    return [[part.transpose(1, 2)] for part in parts]


class TestModel(ModelTests):
    spec = Spec(
        72,
        hyena,
        honest=0.7,
        widened_sizes=("odd",),
        exactness=1e-10,
        large_bytes=12e9,
        more_cases=((1, "odd", "fp32"),),
        mistakes={"zigzag not undone": partial(hyena, mistake=True)},
        mistake_cases=[(w, size, dtype) for w in (2, 4) for size in ("tiny", "odd") for dtype in ("fp32", "bf16")],
    )


def test_hyena_calls_come_with_and_without_zigzag() -> None:
    calls = [all_arguments(72, 2, "tiny", "fp32", call) for call in range(20)]
    assert all(a["with_zigzag_splitting"] == b["with_zigzag_splitting"] for a, b in calls)
    assert 8 < sum(a["with_zigzag_splitting"] for a, _ in calls) < 20
