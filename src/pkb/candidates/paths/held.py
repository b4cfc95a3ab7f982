"""What a Python value of a candidate may be, and what a place holds that may hold several."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

Plain = Literal["peer", "peers", "address", "table", "multicast", "local", "own"]
"""A peer's tensor (in Triton: a pointer to one); several; a peer's address as a number; a table of addresses; the NVLS
address; a table of this rank's own addresses; this rank's number."""


class Items(NamedTuple):
    """A tuple, with what each place holds; or, `any_key`, a dictionary or list whose every place may hold it."""

    places: tuple["Value", ...]
    any_key: bool = False


class Kernel(NamedTuple):
    """A compiled kernel, by name."""

    name: str


Value = Plain | Items | Kernel | None

_ORDER: dict[str, int] = {"peer": 7, "peers": 6, "address": 5, "table": 4, "multicast": 3, "local": 2, "own": 1}


def pack(places: list[Value], *, any_key: bool = False) -> Value:
    """A container; one inside one inside one is no longer told apart, so that `x = (x, x)` cannot grow without end."""
    if any(_depth(place) >= 2 for place in places):
        flat: list[Value] = [join(place.places) if isinstance(place, Items) else place for place in places]
        places = [join(place.places) if isinstance(place, Items) else place for place in flat]
    nothing = any_key and all(place is None for place in places)  # `{}`: what comes later decides
    return None if nothing else Items(tuple(places), any_key)


def _depth(value: Value) -> int:
    return 1 + max((_depth(place) for place in value.places), default=0) if isinstance(value, Items) else 0


def join(values: Iterable[Value]) -> Value:
    """What a place holds that may hold any of these: the one that matters most."""
    best: Value = None
    for value in values:
        if value is None or value == best:
            continue
        if isinstance(value, Items) and isinstance(best, Items):
            best = _join_items(best, value)
        elif (
            best is None
            or isinstance(value, Items)
            or (isinstance(best, str) and isinstance(value, str) and _ORDER[value] > _ORDER[best])
        ):
            best = value
    return best


def _join_items(one: Items, other: Items) -> Items:
    if one.any_key or other.any_key or len(one.places) != len(other.places):
        if (one.any_key and other.any_key) or len(one.places) != len(other.places):
            return Items((join((*one.places, *other.places)),), any_key=True)
        return one if not one.any_key else other
    return Items(tuple(join(pair) for pair in zip(one.places, other.places, strict=True)))


def one_of(value: Value) -> Value:
    return "peer" if value == "peers" else "address" if value == "table" else value


def part(value: Value, index: int) -> Value:
    """What one name of `a, b = value` gets."""
    if not isinstance(value, Items):
        return one_of(value)
    if value.any_key:
        return join(value.places)
    return value.places[index] if index < len(value.places) else None
