"""Says what a difference looks like, so that a person or a model can guess the mistake behind it.

It goes through large outputs piece by piece, like the rules of `pkb.problems.compare`: a wrong candidate at a production size
must get its diagnosis, not an oracle that runs out of memory.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from pkb.problems.compare import Context, pieces
from pkb.rank.trees import describe
from pkb.types.difference import Pattern

NEAR = 5e-2
NEARER = 0.3
"""A result that is another call's is so much nearer to that call's truth than to its own: what is left is rounding."""
LEAST_TRANSPOSED = 16
"""Elements below which an exchange of axes proves little."""
FEW_NUMBERS = 4
"""Fewer than these always have a factor or a difference in common; only a whole factor says something then."""
LEAST_OWN_INPUT = 16
"""Elements below which an argument must have come back to the last bit."""
MOST_TRANSPOSED = 1 << 26
"""Elements above which there may be no room for a second copy."""
SAMPLE = 1 << 22
"""Elements from which quantiles are taken; more are thinned out evenly."""


def diagnose(
    want: torch.Tensor, have: torch.Tensor, *, context: Context, others: dict[int, torch.Tensor]
) -> dict[str, Any]:
    """Pattern and what belongs to it, first differing element, share of differing elements, and where along the first axis
    they lie. `others`: what other calls of the batch must give, by how many calls later they are (earlier: below 0)."""
    want, have = _real(want), _real(have)
    differing = _differing(want, have)
    if not bool(differing.any()):  # many small errors that add up: show the largest
        largest = max(float(_error(w, h).max()) for w, h in _doubles(want, have))
        differing = torch.cat([_error(w, h) == largest for w, h in _doubles(want, have)]).reshape(want.shape)
    index = _unravel(int(differing.reshape(-1).to(torch.uint8).argmax()), want.shape)
    seen = _look(want, have, differing, context, others)
    return {
        "pattern": seen.pattern,
        "amount": seen.amount,
        "argument": seen.argument,
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


class _Look(NamedTuple):
    """A pattern with its amount or argument, as `pkb.types.difference.Mismatch` holds them."""

    pattern: Pattern | None = None
    amount: float | None = None
    argument: str = ""


def _look(
    want: torch.Tensor, have: torch.Tensor, differing: torch.Tensor, context: Context, others: dict[int, torch.Tensor]
) -> _Look:
    nan = sum(int((h.isnan() & ~w.isnan()).sum()) for w, h in _doubles(want, have))
    if nan:
        return _Look(Pattern.NAN, nan / have.numel())
    if not any(bool(h.any()) for (h,) in _doubles(have)):
        return _Look(Pattern.ZEROS)
    if (other := _other_call(want, have, differing, others)) is not None:
        return other
    for name, value in context.arguments.items():
        for tensor in map(_real, describe(value)[1]):
            if tensor.numel() == have.numel() and _came_back(tensor.to(have.device).reshape(have.shape), want, have):
                return _Look(Pattern.OWN_INPUT, argument=name)
    if _transposed(want, have):
        return _Look(Pattern.TRANSPOSED)
    few = _Look(Pattern.FEW_ELEMENTS) if _share(differing) < 0.02 else _Look()
    return _constant_difference(want, have) or few


def _came_back(argument: torch.Tensor, want: torch.Tensor, have: torch.Tensor) -> bool:
    """The result is this argument, and not merely near to it: parameters after an optimizer's step are near to those before,
    and of a few numbers one is soon near to another."""
    if have.numel() < LEAST_OWN_INPUT:
        return bool((argument.to(have.dtype) == have).all())
    return _alike(argument, have) and _distance(argument, have) <= NEARER * _distance(want, have)


def _other_call(
    want: torch.Tensor, have: torch.Tensor, differing: torch.Tensor, others: dict[int, torch.Tensor]
) -> _Look | None:
    """The other call whose result is here in place of this call's own, in whole or where it differs; of several the nearest
    in values, since results that hardly change from call to call are all alike."""
    found: list[tuple[float, bool, int]] = []
    for distance, other in others.items():
        whole = _overwritten(_real(other), want, have) if distance > 0 else None
        if whole is not None:
            found.append((whole, True, distance))
        elif _real(other).shape == have.shape and _alike(_real(other), have, differing):
            found.append((_distance(_real(other), have, differing), False, distance))
    if not found:
        return None
    _, whole_result, distance = min(found)
    if distance < 0:
        return _Look(Pattern.STALE, -distance)
    return _Look(Pattern.OVERWRITTEN if whole_result else Pattern.LATER, distance)


def _overwritten(other: torch.Tensor, want: torch.Tensor, have: torch.Tensor) -> float | None:
    """How far this result is from that of the later call, if it is the later call's and not its own. Where the two have
    different shapes, a buffer for both holds the later one first: the elements that both have are compared."""
    common = min(other.numel(), have.numel())
    if other.shape != have.shape:
        if 2 * common < have.numel():
            return None
        other, want, have = (tensor.reshape(-1)[:common] for tensor in (other, want, have))
    if not _alike(other, have):
        return None
    distance = _distance(other.to(have.dtype), have)  # rounded alike: a loss of two calls may differ by little more
    return distance if distance <= NEARER * _distance(want, have) else None


def _distance(a: torch.Tensor, b: torch.Tensor, mask: torch.Tensor | None = None) -> float:
    """Euclidean, over the elements where the mask is true."""
    total = 0.0
    for one, other, *chosen in pieces(a, b) if mask is None else pieces(a, b, mask):
        if chosen:
            one, other = one[chosen[0]], other[chosen[0]]
        total += float(_error(one.double(), other.double()).nan_to_num(posinf=0.0).square().sum())
    return math.sqrt(total)


def _transposed(want: torch.Tensor, have: torch.Tensor) -> bool:
    """The right elements with two axes exchanged: of equal extents, or written in the order of the exchanged ones."""
    if not LEAST_TRANSPOSED <= want.numel() <= MOST_TRANSPOSED:
        return False
    for first, second in itertools.combinations(range(want.dim()), 2):
        exchanged = want.transpose(first, second)
        if exchanged.shape == have.shape and _alike(exchanged, have):
            return True
        if want.shape[first] > 1 < want.shape[second] and _alike(exchanged.reshape(have.shape), have):
            return True
    return False


def _constant_difference(want: torch.Tensor, have: torch.Tensor) -> _Look | None:
    step = max(1, math.ceil(want.numel() / SAMPLE))
    samples = [(w[::step].double(), h[::step].double()) for w, h in pieces(want, have)]
    some_want, some_have = (torch.cat(column) for column in zip(*samples, strict=True))
    usable = (some_want != 0) & torch.isfinite(some_want) & torch.isfinite(some_have)
    if not bool(usable.any()):
        return None
    some_want, some_have = some_want[usable], some_have[usable]
    few = some_want.numel() < FEW_NUMBERS
    low, middle, high = _quantiles(some_have / some_want)
    if middle and abs(high - low) <= NEAR * abs(middle) and abs(middle - 1) > NEAR and (_whole(middle) or not few):
        return _Look(Pattern.CONSTANT_FACTOR, middle)
    if few:
        return None
    low, middle, high = _quantiles(some_have - some_want)
    if abs(middle) > 0 and abs(high - low) <= NEAR * abs(middle):
        return _Look(Pattern.CONSTANT_OFFSET, middle)
    return None


def _whole(factor: float) -> bool:
    """2, 3, 1/4: what a sum counted twice or a mean in place of a sum leaves."""
    larger = max(abs(factor), 1 / abs(factor))
    return larger > 1.5 and abs(larger - round(larger)) <= 0.01 * larger


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
