"""Problem 76, Conv3d with sharded channels: a sum over kernel offsets and ranks."""

import torch
from harness import ModelTests, Spec
from model_convolution import convolve
from on_ranks import Arguments, Outputs


def triple(value: int | tuple[int, int, int]) -> tuple[int, int, int]:
    return (value, value, value) if isinstance(value, int) else value


def conv3d(ranks: list[Arguments]) -> list[Outputs]:
    first = ranks[0]
    groups = first["groups"]
    parts = []
    for group in range(groups):
        total: torch.Tensor | float = 0.0
        for arguments in ranks:
            x = arguments["input"].double().chunk(groups, dim=1)[group]
            weight = arguments["weight"].double().chunk(groups, dim=0)[group]
            shape = {name: triple(first[name]) for name in ("stride", "padding", "dilation")}
            total = total + convolve(x, weight, **shape)
        assert isinstance(total, torch.Tensor)
        parts.append(total)
    out = torch.cat(parts, dim=1)
    if first["bias"] is not None:
        out = out + first["bias"].double()[None, :, None, None, None]
    return [[out] for _ in ranks]


class TestModel(ModelTests):
    spec = Spec(
        76,
        conv3d,
        honest=0.85,
        spoilt=1.2,
        calls=(1, 2),  # with a bias and without
        widened_sizes=("odd",),
    )
