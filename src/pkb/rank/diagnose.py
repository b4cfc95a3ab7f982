"""Says what a difference looks like, so that a person or a model can guess the mistake behind it."""

from typing import Any

import torch

from pkb.problems.compare import Context
from pkb.rank.trees import describe

NEAR = 5e-2


def diagnose(
    want: torch.Tensor, have: torch.Tensor, *, context: Context, others: dict[int, torch.Tensor]
) -> dict[str, Any]:
    """Pattern, first differing element, share of differing elements, and where along the first axis they lie."""
    if want.is_complex() or have.is_complex():
        want, have = torch.view_as_real(want.to(torch.complex128)), torch.view_as_real(have.to(torch.complex128))
    want, have = want.double(), have.double()
    differing = _differing(want, have)
    if not bool(differing.any()):  # many small errors that add up: show the largest
        differing = (have - want).abs() == (have - want).abs().max()
    flat = int(differing.reshape(-1).to(torch.uint8).argmax())
    index = _unravel(flat, want.shape)
    return {
        "pattern": _pattern(want, have, differing, context, others),
        "first_index": list(index),
        "first_got": _number(have[index]),
        "first_expected": _number(want[index]),
        "differing_fraction": float(differing.double().mean()),
        "regions": _regions(differing, context.world_size),
    }


def _differing(want: torch.Tensor, have: torch.Tensor) -> torch.Tensor:
    finite = want[torch.isfinite(want)]
    scale = finite.abs().mean() if finite.numel() else torch.tensor(1.0)
    same = (have - want).abs() <= NEAR * (want.abs() + scale)
    return ~(same | (have == want) | (have.isnan() & want.isnan()))


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and not bool(_differing(a, b).any())


def _pattern(
    want: torch.Tensor, have: torch.Tensor, differing: torch.Tensor, context: Context, others: dict[int, torch.Tensor]
) -> str:
    nan = have.isnan() & ~want.isnan()
    if bool(nan.any()):
        return f"NaN in {float(nan.double().mean()):.1%} of the elements"
    if not bool(have.any()):
        return "all zeros"
    for slot, other in others.items():
        if bool(differing.any()) and not bool(_differing(other.double()[differing], have[differing]).any()):
            return f"stale data: the differing elements are those of another call (number {slot})"
    for name, value in context.arguments.items():
        for tensor in describe(value)[1]:
            if tensor.numel() == have.numel() and _close(tensor.double().reshape(have.shape), have):
                return f"this rank's own {name} came back"
    usable = (want != 0) & torch.isfinite(want) & torch.isfinite(have)
    if bool(usable.any()):
        factors = (have[usable] / want[usable]).sort().values
        low, middle, high = (float(factors[int(q * (factors.numel() - 1))]) for q in (0.05, 0.5, 0.95))
        if middle and abs(high - low) <= NEAR * abs(middle) and abs(middle - 1) > NEAR:
            return f"a constant factor: about {middle:.4g} times the expected values"
        shifts = (have - want)[usable].sort().values
        low, middle, high = (float(shifts[int(q * (shifts.numel() - 1))]) for q in (0.05, 0.5, 0.95))
        if abs(middle) > 0 and abs(high - low) <= NEAR * abs(middle):
            return f"off by a constant: about {middle:.4g}"
    share = float(differing.double().mean())
    if share < 0.02:
        return "a few elements only"
    return ""


def _regions(differing: torch.Tensor, parts: int) -> list[list[Any]]:
    """Share of differing elements in each of W equal parts of the first axis: a shard boundary shows as 0, 0, 1, 0."""
    if differing.dim() == 0 or parts < 2 or differing.shape[0] < parts:
        return []
    rows = differing.shape[0]
    edges = [part * rows // parts for part in range(parts + 1)]
    return [
        [f"rows {edges[p]}-{edges[p + 1] - 1}", float(differing[edges[p] : edges[p + 1]].double().mean())]
        for p in range(parts)
    ]


def _unravel(flat: int, shape: torch.Size) -> tuple[int, ...]:
    index = []
    for extent in reversed(shape):
        index.append(flat % extent)
        flat //= extent
    return tuple(reversed(index))


def _number(value: torch.Tensor) -> float | str:
    number = float(value)
    return number if number == number and abs(number) != float("inf") else str(number)
