"""Says what a difference looks like, so that a person or a model can guess the mistake behind it.

It goes through large outputs piece by piece, like the rules of `pkb.problems.compare`: a wrong candidate at a production size
must get its diagnosis, not an oracle that runs out of memory.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch

from pkb.problems.compare import Context, pieces
from pkb.rank.trees import describe

NEAR = 5e-2
SAMPLE = 1 << 22
"""Elements from which quantiles are taken; more are thinned out evenly."""


def diagnose(
    want: torch.Tensor, have: torch.Tensor, *, context: Context, others: dict[int, torch.Tensor]
) -> dict[str, Any]:
    """Pattern, first differing element, share of differing elements, and where along the first axis they lie."""
    want, have = _real(want), _real(have)
    differing = _differing(want, have)
    if not bool(differing.any()):  # many small errors that add up: show the largest
        largest = max(float(_error(w, h).max()) for w, h in _doubles(want, have))
        differing = torch.cat([_error(w, h) == largest for w, h in _doubles(want, have)]).reshape(want.shape)
    index = _unravel(int(differing.reshape(-1).to(torch.uint8).argmax()), want.shape)
    return {
        "pattern": _pattern(want, have, differing, context, others),
        "first_index": list(index),
        "first_got": _number(have[index]),
        "first_expected": _number(want[index]),
        "differing_fraction": _share(differing),
        "regions": _regions(differing, context.world_size),
    }


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _doubles(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    for parts in pieces(*tensors):
        yield tuple(part.double() for part in parts)


def _error(want: torch.Tensor, have: torch.Tensor) -> torch.Tensor:
    return (have - want).abs().nan_to_num(nan=0.0)


def _differing(want: torch.Tensor, have: torch.Tensor) -> torch.Tensor:
    scale = _scale(want)
    return torch.cat([_apart(w, h, scale) for w, h in _doubles(want, have)]).reshape(want.shape)


def _apart(want: torch.Tensor, have: torch.Tensor, scale: float) -> torch.Tensor:
    same = (have - want).abs() <= NEAR * (want.abs() + scale)
    return ~(same | (have == want) | (have.isnan() & want.isnan()))


def _scale(values: torch.Tensor, mask: torch.Tensor | None = None) -> float:
    """The mean size of the finite values (where the mask is true), 1 if there are none."""
    total, count = 0.0, 0
    for value, *chosen in pieces(values) if mask is None else pieces(values, mask):
        wide = (value[chosen[0]] if chosen else value).double()
        finite = wide[torch.isfinite(wide)]
        total, count = total + float(finite.abs().sum()), count + finite.numel()
    return total / count if count else 1.0


def _alike(a: torch.Tensor, b: torch.Tensor, mask: torch.Tensor | None = None) -> bool:
    """No element (where the mask is true) of one is far from the other's."""
    scale = _scale(a, mask)
    for one, other, *chosen in pieces(a, b) if mask is None else pieces(a, b, mask):
        if chosen:
            one, other = one[chosen[0]], other[chosen[0]]
        if bool(_apart(one.double(), other.double(), scale).any()):
            return False
    return True


def _pattern(
    want: torch.Tensor, have: torch.Tensor, differing: torch.Tensor, context: Context, others: dict[int, torch.Tensor]
) -> str:
    nan = sum(int((h.isnan() & ~w.isnan()).sum()) for w, h in _doubles(want, have))
    if nan:
        return f"NaN in {nan / have.numel():.1%} of the elements"
    if not any(bool(h.any()) for (h,) in _doubles(have)):
        return "all zeros"
    for slot, other in others.items():
        if bool(differing.any()) and _alike(_real(other), have, differing):
            return f"stale data: the differing elements are those of another call (number {slot})"
    for name, value in context.arguments.items():
        for tensor in map(_real, describe(value)[1]):
            if tensor.numel() == have.numel() and _alike(tensor.to(have.device).reshape(have.shape), have):
                return f"this rank's own {name} came back"
    return _constant_difference(want, have) or ("a few elements only" if _share(differing) < 0.02 else "")


def _constant_difference(want: torch.Tensor, have: torch.Tensor) -> str:
    step = max(1, math.ceil(want.numel() / SAMPLE))
    samples = [(w[::step].double(), h[::step].double()) for w, h in pieces(want, have)]
    some_want, some_have = (torch.cat(column) for column in zip(*samples, strict=True))
    usable = (some_want != 0) & torch.isfinite(some_want) & torch.isfinite(some_have)
    if not bool(usable.any()):
        return ""
    some_want, some_have = some_want[usable], some_have[usable]
    low, middle, high = _quantiles(some_have / some_want)
    if middle and abs(high - low) <= NEAR * abs(middle) and abs(middle - 1) > NEAR:
        return f"a constant factor: about {middle:.4g} times the expected values"
    low, middle, high = _quantiles(some_have - some_want)
    if abs(middle) > 0 and abs(high - low) <= NEAR * abs(middle):
        return f"off by a constant: about {middle:.4g}"
    return ""


def _quantiles(values: torch.Tensor) -> tuple[float, float, float]:
    ordered = values.sort().values
    low, middle, high = (float(ordered[int(q * (ordered.numel() - 1))]) for q in (0.05, 0.5, 0.95))
    return low, middle, high


def _share(differing: torch.Tensor) -> float:
    return int(differing.sum()) / max(1, differing.numel())


def _regions(differing: torch.Tensor, parts: int) -> list[list[Any]]:
    """Share of differing elements in each of W equal parts of the first axis: a shard boundary shows as 0, 0, 1, 0."""
    if differing.dim() == 0 or parts < 2 or differing.shape[0] < parts:
        return []
    rows = differing.shape[0]
    edges = [part * rows // parts for part in range(parts + 1)]
    return [[f"rows {edges[p]}-{edges[p + 1] - 1}", _share(differing[edges[p] : edges[p + 1]])] for p in range(parts)]


def _unravel(flat: int, shape: torch.Size) -> tuple[int, ...]:
    index = []
    for extent in reversed(shape):
        index.append(flat % extent)
        flat //= extent
    return tuple(reversed(index))


def _number(value: torch.Tensor) -> float | str:
    number = float(value)
    return number if number == number and abs(number) != float("inf") else str(number)
