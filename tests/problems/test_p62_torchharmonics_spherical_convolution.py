"""Problem 62, convolution on the sphere: one sphere, convolved and cut."""

import math
from functools import partial

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs


def spherical_convolution(ranks: list[Arguments], mistake: bool = False) -> list[Outputs]:
    """One sphere: put it together, convolve, cut. Mistake: the filter turns the other way."""
    az = 1 if len(ranks) % 2 else 2
    x = torch.cat([torch.cat([a["x"].double() for a in ranks[p : p + az]], -1) for p in range(0, len(ranks), az)], -2)
    first = ranks[0]
    nlon, nlon_out = first["nlon_in"], first["nlon_out"]
    psi = torch.cat(
        [a["psi"].to_dense().double().unflatten(-1, (-1, nlon)) for a in ranks[::az]], dim=-2
    )  # (K, t, h, w)
    shift = nlon // nlon_out * (-1 if mistake else 1)
    y = torch.stack(
        [torch.einsum("kthw,bchw->bckt", psi, x.roll(-p * shift, dims=-1)) for p in range(nlon_out)], dim=-1
    )
    weight, bias = first["weight"].double(), first["bias"].double()
    per_group = first["groups"]
    mixed = [
        torch.einsum("bcktp,ock->botp", y_g, w_g)
        for y_g, w_g in zip(y.chunk(per_group, dim=1), weight.chunk(per_group, dim=0), strict=True)
    ]
    out = torch.cat(mixed, dim=1) + bias[:, None, None]

    def bounds(extent: int, parts: int, index: int) -> slice:
        step = math.ceil(extent / parts)
        step = step if step * (parts - 1) < extent else extent // parts
        return slice(index * step, extent if index == parts - 1 else (index + 1) * step)

    pol = len(ranks) // az
    return [[out[..., bounds(out.shape[-2], pol, r // az), bounds(nlon_out, az, r % az)]] for r in range(len(ranks))]


class TestModel(ModelTests):
    spec = Spec(
        62,
        spherical_convolution,
        dtypes=("fp32",),
        honest=0.7,
        widened_sizes=("odd",),
        exactness=1e-10,
        large_bytes=12e9,
        more_cases=((1, "odd", "fp32"),),
        mistakes={"filter turned the other way": partial(spherical_convolution, mistake=True)},
        mistake_cases=[(w, size, dtype) for w in (2, 4) for size in ("tiny", "odd") for dtype in ("fp32",)],
    )
