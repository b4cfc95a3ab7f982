"""When to stop: an evaluation examines its samples a few times, and stops as soon as they decide."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from pkb.judge.timing.statistics import ERROR, NEAR, Estimate

LOOKS = (0.08, 0.32, 0.2, 0.2, 0.2)
"""The share of `ERROR` that each look at the samples may spend: looking five times is five chances to be wrong."""
LAST_LOOK = 64
"""After so many rounds, should there be time; no sooner than after eight times those that are planned."""
FAR = 1.15
"""The first look, after few rounds, settles only what is at least so far from 1."""


class Look(NamedTuple):
    rounds: int
    """After so many."""
    error: float
    settles: float
    """How far from 1 the interval must be."""

    def as_the_last(self, later: Sequence["Look"]) -> "Look":
        """Adds the error share of the `later` looks, which will not happen because time is up."""
        return self._replace(error=self.error + sum(one.error for one in later))


def looks(planned: int, last: int = LAST_LOOK) -> list[Look]:
    """After half of the planned rounds, after all of them, and three more, each later by the same factor."""
    times = (max(last, 8 * planned) / planned) ** (1 / 3)
    rounds = [math.ceil(planned / 2), *(round(planned * times**n) for n in range(4))]
    return [Look(n, ERROR * share, 1.0 if i else FAR) for i, (n, share) in enumerate(zip(rounds, LOOKS, strict=True))]


def settled(found: Estimate, look: Look, *, confirmed: bool) -> bool:
    """Would more rounds change nothing? More rounds may still confirm a gain in the window; they cannot reduce the uncertainty
    of the start."""
    ratio, near = found.ratio, max(NEAR, math.exp(found.start))
    tight = found.rounds.low > 1 / near and found.rounds.high < near
    if ratio.low > 1:
        return confirmed and (ratio.low > look.settles or tight)
    return ratio.high < 1 / look.settles or tight
