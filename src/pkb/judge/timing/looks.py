"""When the samples so far settle the question: an evaluation looks at them a few times, and stops as soon as they do."""

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
        """With what `later` ones would have spent: time is up, and they will not be."""
        return self._replace(error=self.error + sum(one.error for one in later))


def looks(planned: int, last: int = LAST_LOOK) -> list[Look]:
    """After half of the planned rounds, after all, and three more, each after as many times the rounds of the one before."""
    times = (max(last, 8 * planned) / planned) ** (1 / 3)
    rounds = [math.ceil(planned / 2), *(round(planned * times**n) for n in range(4))]
    return [Look(n, ERROR * share, 1.0 if i else FAR) for i, (n, share) in enumerate(zip(rounds, LOOKS, strict=True))]


def settled(found: Estimate, look: Look, *, confirmed: bool) -> bool:
    """Would more rounds change nothing? A gain that the window has not confirmed yet may be with more of them; what another
    start may add is left, however many there are."""
    ratio, near = found.ratio, max(NEAR, math.exp(found.start))
    tight = found.rounds.low > 1 / near and found.rounds.high < near
    if ratio.low > 1:
        return confirmed and (ratio.low > look.settles or tight)
    return ratio.high < 1 / look.settles or tight
