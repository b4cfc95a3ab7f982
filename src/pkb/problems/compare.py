"""How one output is compared with the truth. Every rule answers with a ratio: error over tolerance, at most 1 passes.

A ratio rather than a yes lets `pkb lint` say how far the nearest null candidate is from passing, and how far an honest
computation in another order is from failing.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

# Frobenius tolerance of the norm gate. An honest bf16 sum over 8 ranks lands at 4e-3, a float32 one at 2.5e-7.
TAU: Mapping[torch.dtype, float] = {
    torch.bfloat16: 1e-2,
    torch.float16: 1.5e-3,
    torch.float32: 1e-5,
    torch.float64: 1e-12,
}


@dataclass(frozen=True)
class Context:
    """What a rule may know about the call beside the two outputs."""

    arguments: Mapping[str, Any]
    rank: int
    world_size: int
    dtype: torch.dtype


Rule = Callable[[torch.Tensor, torch.Tensor, Context], float]


@dataclass(frozen=True)
class Exact:
    """Every value equal; the sign of a zero and the payload of a NaN do not matter, since no reference specifies them."""

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        truth = truth.to(output.dtype)
        same = truth == output
        if output.is_floating_point():
            same |= truth.isnan() & output.isnan()
        return 0.0 if bool(same.all()) else math.inf


@dataclass(frozen=True)
class NormGate:
    """Relative Frobenius error at most tau, and no single element off by more than 4 tau of its size plus the output's rms.

    Element-wise relative tolerance alone is wrong for sums of random terms: elements near zero carry the rounding error of
    their large partial sums. `tau` replaces the default of a dtype where the catalogue argues for another.
    """

    tau: Mapping[torch.dtype, float] = field(default_factory=dict)
    element_factor: float = 4.0

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        if output.numel() == 0:
            return 0.0
        tau = self.tau[output.dtype] if output.dtype in self.tau else TAU[output.dtype]
        want, got = truth.double(), output.double()
        special = ~torch.isfinite(want)
        if bool(special.any()):  # infinities and NaN must stand at the same places with the same sign
            if not bool((special == ~torch.isfinite(got)).all()):
                return math.inf
            same = (want == got) | (want.isnan() & got.isnan())
            if not bool(same[special].all()):
                return math.inf
            want, got = want[~special], got[~special]
            if want.numel() == 0:
                return 0.0
        error = (got - want).abs()
        rms = want.square().mean().sqrt()
        if rms == 0:
            return 0.0 if float(error.max()) == 0 else math.inf
        frobenius = float(error.square().mean().sqrt() / rms) / tau
        worst = float((error / (want.abs() + rms)).max()) / (self.element_factor * tau)
        ratio = max(frobenius, worst)
        return ratio if math.isfinite(ratio) else math.inf


@dataclass(frozen=True)
class Close:
    """|output - truth| <= atol + rtol |truth|, element by element, with limits per dtype of the output."""

    rtol: Mapping[torch.dtype, float]
    atol: Mapping[torch.dtype, float] = field(default_factory=dict)

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        if output.numel() == 0:
            return 0.0
        want, got = truth.double(), output.double()
        same = (want == got) | (want.isnan() & got.isnan())
        limit = self.atol.get(output.dtype, 0.0) + self.rtol[output.dtype] * want.abs()
        ratio = torch.where(same, 0.0, (got - want).abs() / limit)
        worst = float(ratio.nan_to_num(nan=math.inf, posinf=math.inf).max())
        return worst if math.isfinite(worst) else math.inf


@dataclass(frozen=True)
class Upstream:
    """The published benchmark's test, for comparison with its figures only: all-close in float32 with 1e-2."""

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        limit = {torch.float32: 1e-2}
        return Close(rtol=limit, atol=limit)(truth.float(), output.float(), context)
