"""The order of a leaderboard, where not everything was measured of everybody.

Better is who is proven faster on a larger share of problems; then who is correct by kernels of its own on more; then who is
correct on more. Whose speed was not measured could have any share up to the share it solved: it is placed above another
only if it would be with the least of them, and below only if it would be with the most. Of two that were both not timed,
the better one is not behind in what was measured of both.
"""

from collections.abc import Callable, Sequence
from operator import ge
from typing import NamedTuple, TypeVar

Row = TypeVar("Row")


class Shares(NamedTuple):
    """Shares of problems; None: not measured."""

    faster: float | None
    custom: float | None
    correct: float | None


class Place(NamedTuple):
    """The best and the worst place that the missing measurements leave possible; the same where nothing is missing."""

    best: int
    worst: int

    def __str__(self) -> str:
        return str(self.best) if self.best == self.worst else f"{self.best}-{self.worst}"


def places(standings: Sequence[Shares]) -> list[Place | None]:
    """Ties have the same place. None: nothing was judged, so there is no place."""
    judged = [standing for standing in standings if standing.correct is not None]
    found: list[Place | None] = []
    for one in standings:
        if one.correct is None:
            found.append(None)
            continue
        better = sum(_surely_better(other, one) for other in judged)
        not_better = sum(_surely_better(one, other) for other in judged) + sum(other == one for other in judged)
        found.append(Place(1 + better, 1 + len(judged) - not_better))
    return found


def ranked(rows: Sequence[Row], standing: Callable[[Row], Shares]) -> list[tuple[Place | None, Row]]:
    """Best first, each with its place. Who may be first or last stands in between; the order of ties is the given one."""
    placed = list(zip(places([standing(row) for row in rows]), rows, strict=True))
    last = 2 * len(placed) + 1
    return sorted(placed, key=lambda pair: last if pair[0] is None else sum(pair[0]))


def _surely_better(one: Shares, other: Shares) -> bool:
    if one.faster is None and other.faster is None:
        # In both: with the first that differs alone, one could be better than another that may have been faster than it.
        return _solved(one) != _solved(other) and all(map(ge, _solved(one), _solved(other)))
    # Nobody is faster on more problems than it solves.
    least = 0.0 if one.faster is None else one.faster
    most = (other.correct or 0.0) if other.faster is None else other.faster
    return least > most or (least == most and _solved(one) > _solved(other))


def _solved(standing: Shares) -> tuple[float, float]:
    return standing.custom or 0.0, standing.correct or 0.0
