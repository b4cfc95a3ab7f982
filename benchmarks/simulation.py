"""Simulates evaluations as the judge makes them: its own looks, estimates, starts and decisions, on noise that was measured.

`noise.py` draws the rounds; `estimator.py` tabulates the results, and tests/null/test_power.py checks them.
"""

import math
import random
import statistics
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from noise import AS_IT_WAS, OLDER, WINDOW, Drawn, Noise, Side, measured_noise, starts

from pkb.judge.exchange import Exchange
from pkb.judge.timing.looks import looks, settled
from pkb.judge.timing.starts import Starts, over_starts
from pkb.judge.timing.statistics import ERROR, LONG_US, Claim, Paired, check_clock, estimate, mean
from pkb.types.plan import MORE_S
from pkb.types.timing import Decision

START_S = 6.0
"""What a start of the ranks on one GPU takes, with first calls; seconds of rounds come on top."""
RESAMPLES = 100
"""Fewer than the judge's thousand: the width that comes from them is then known to 7 %."""


class Outcome(NamedTuple):
    decision: Decision
    rounds: int


class _Start(NamedTuple):
    """What a call of each side takes in it."""

    usual_us: float
    reference_us: float
    candidate_us: float
    said_us: float
    """What the candidate's ranks say it takes."""

    def samples(self, drawn: Sequence[Drawn]) -> Paired:
        return Paired(
            [[self.reference_us * x for x in one.reference] for one in drawn],
            [[self.said_us * x for x in one.candidate] for one in drawn],
        )

    def walls_us(self, drawn: Sequence[Drawn]) -> list[list[float]]:
        """Of reference, candidate and empty batches."""
        more_us = (self.reference_us - self.usual_us, self.candidate_us - self.usual_us, 0.0)
        return [[us + more for one in drawn for us in one[side]] for side, more in enumerate(more_us, 2)]


def _confirmed(samples: Paired, walls_us: Sequence[Sequence[float]], error: float) -> bool:
    reference, candidate = (
        Claim(mean(calls), 0.0, side_us, typical_us, most_us)
        for calls, side_us, typical_us, most_us in zip(
            samples[:2], walls_us[:2], samples.typical_us(), samples.most_us(), strict=True
        )
    )
    return check_clock(reference, candidate, walls_us[2], error=error).confirms


def _no_ranks() -> Exchange:
    raise NotImplementedError


def evaluation(
    noise: Noise,
    true_speedup: float,
    source: random.Random,
    *,
    claimed: float | None = None,
    window: bool = True,
    start: bool = True,
    term: bool = True,
    unknown: float | None = None,
    restarts: bool = True,
) -> Outcome:
    """One evaluation as `judge/timing/measure.py` does it, of calls that take as long as in the record. `claimed`: what a
    forger's ranks report, whatever its speedup is. Without `start`, all starts are alike; without `term`, the judge thinks so.
    `unknown`: by what a side's starts differ, of which the judge knows nothing; it makes more of them unless told not to.

    A gain is on the host wall clock what it is on the device, in microseconds; everything else there is as it was measured.
    """

    def begin() -> _Start:
        if unknown is not None:
            ours, theirs = (math.exp(source.gauss(0, unknown)) for _ in range(2))
        else:
            ours, theirs = starts(long=noise.call_us >= LONG_US).draw(source) if start else (1.0, 1.0)
        reference_us, candidate_us = noise.call_us * true_speedup * theirs, noise.call_us * ours
        said_us = candidate_us if claimed is None else reference_us / claimed
        return _Start(noise.call_us, reference_us, candidate_us, said_us)

    first = begin()
    time_left, ahead = MORE_S, False
    drawn: list[Drawn] = []
    planned = looks(noise.planned)
    for number, look in enumerate(planned, 1):
        more = look.rounds - len(drawn)
        if len(drawn) >= noise.planned:
            each_s = noise.round_s / 2 if ahead else noise.round_s  # half of a round are the queued batches
            more = min(more, math.ceil(time_left / each_s))
            time_left -= more * each_s
        drawn += noise.draw(more, source)
        if over := time_left <= 0:
            look = look.as_the_last(planned[number:])
        if not ahead:
            samples = first.samples(drawn)
            found = estimate(samples, look.error, resamples=RESAMPLES)
            found = found if term else found._replace(start=0.0)
            ratio = found.ratio
        confirmed = True
        if window and ratio.low > 1:
            confirmed = _confirmed(samples, first.walls_us(drawn), look.error)
        if over or settled(found, look, confirmed=confirmed):
            break
        ahead = len(drawn) >= noise.planned and ratio.low > 1
    several = Starts(_no_ranks, known_below_us=LONG_US)
    if unknown is not None and restarts and several.more(found, samples.typical_us()[0]):
        walls_us, by_start = first.walls_us(drawn), [found]
        rounds = max(2, math.ceil(noise.planned / 2))
        while len(by_start) < several.how_many(START_S + (rounds + 1) * noise.round_s):
            again, more_drawn = begin(), noise.draw(rounds, source)
            part = again.samples(more_drawn)
            samples = Paired([*samples.reference_us, *part.reference_us], [*samples.candidate_us, *part.candidate_us])
            walls_us = [a + b for a, b in zip(walls_us, again.walls_us(more_drawn), strict=True)]
            by_start.append(estimate(part, resamples=RESAMPLES))
            drawn += more_drawn
        ratio = over_starts(by_start).ratio
        confirmed = not window or ratio.low <= 1 or _confirmed(samples, walls_us, ERROR)
    faster = ratio.decision is Decision.FASTER
    return Outcome(Decision.UNPROVEN if faster and not confirmed else ratio.decision, len(drawn))


class Shares(NamedTuple):
    evaluations: int
    faster: float
    unproven: float
    slower: float
    rounds: float


def shares(noises: Sequence[Noise], true_speedup: float, evaluations: int, *, seed: int = 0, **how: Any) -> Shares:
    """Of so many evaluations, which take turns with the records."""
    source = random.Random(seed)
    made = [evaluation(noises[n % len(noises)], true_speedup, source, **how) for n in range(evaluations)]
    found = Counter(one.decision for one in made)
    faster, unproven, slower = (found[one] / len(made) for one in (Decision.FASTER, Decision.UNPROVEN, Decision.SLOWER))
    return Shares(len(made), faster, unproven, slower, statistics.fmean(one.rounds for one in made))


@cache
def groups() -> dict[str, list[Noise]]:
    records = {"older": OLDER, "window as it was": AS_IT_WAS, "through the window": WINDOW}
    found = {name: measured_noise(paths) for name, paths in records.items()}
    return {
        f"{name}, {words}": [one for one in noises if (one.call_us >= LONG_US) == long]
        for long, words in ((True, "200 us and more"), (False, "shorter"))
        for name, noises in found.items()
    }


# -- noise that nobody has measured ------------------------------------------------------------------------------------


def hostile(side: Side, evaluations: int, planned: int = 8, seed: int = 0) -> Shares:
    """Unchanged code by the ranks' clocks alone, both sides with the same noise. By rounds alone: starts are alike here."""
    source, found = random.Random(seed), Counter[Decision]()
    rounds = 0
    for _ in range(evaluations):
        states: tuple[dict[str, float], dict[str, float]] = ({}, {})
        times: tuple[list[list[float]], list[list[float]]] = ([], [])
        for look in looks(planned):
            for number in range(len(times[0]), look.rounds):
                for mine, state in zip(times, states, strict=True):
                    mine.append(side(number, source, state))
            by_rounds = estimate(Paired(*times), look.error, resamples=RESAMPLES)._replace(start=0.0)
            if settled(by_rounds, look, confirmed=True):
                break
        found[by_rounds.ratio.decision] += 1
        rounds += len(times[0])
    faster, slower = (found[one] / evaluations for one in (Decision.FASTER, Decision.SLOWER))
    return Shares(evaluations, faster, 0.0, slower, rounds / evaluations)
