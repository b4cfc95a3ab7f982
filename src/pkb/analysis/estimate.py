"""Estimators: pass@k in its two readings, and intervals by resampling problems."""

import math
import random
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

RESAMPLES = 2000
CONFIDENCE = 0.95

Statistic = Callable[[Sequence[float]], float]


class Interval(NamedTuple):
    low: float
    high: float


def unbiased_at_k(hits: int, tries: int, k: int) -> float:
    """The chance that k of the tries, drawn without replacement, hold a hit: 1 - C(n-c, k) / C(n, k).

    The estimator of Chen et al. 2021 (HumanEval). With fewer tries than k all of them are used, which can only understate.
    """
    if not 0 <= hits <= tries or tries < 1 or k < 1:
        raise ValueError(f"{hits} hits in {tries} tries at k = {k}")
    k = min(k, tries)
    return 1.0 - math.comb(tries - hits, k) / math.comb(tries, k)


def first_at_k(outcomes: Sequence[bool], k: int) -> float:
    """1 if one of the first k tries is a hit: the published reading of `best of k`."""
    if not outcomes or k < 1:
        raise ValueError(f"{len(outcomes)} tries at k = {k}")
    return float(any(outcomes[:k]))


def bootstrap(values: Sequence[float], statistic: Statistic = statistics.fmean, *, seed: int = 0) -> Interval | None:
    """95 % interval of a statistic over problems: they are drawn with replacement, as if the benchmark had other ones.

    None without values. It says how much the choice of problems matters, not how noisy one verdict is.
    """
    if not values:
        return None
    source = random.Random(seed)
    drawn = sorted(statistic(source.choices(values, k=len(values))) for _ in range(RESAMPLES))
    cut = (1 - CONFIDENCE) / 2
    return Interval(drawn[int(cut * RESAMPLES)], drawn[min(RESAMPLES - 1, int((1 - cut) * RESAMPLES))])


def share_interval(values: Sequence[float], *, seed: int = 0) -> Interval | None:
    """The same for a mean of values between 0 and 1. Where all are 0 or all are 1 resampling sees no doubt at all;
    there the exact bound for 0 (or n) of n is given instead.
    """
    if values and len(set(values)) == 1 and values[0] in (0.0, 1.0):
        bound = ((1 - CONFIDENCE) / 2) ** (1 / len(values))
        return Interval(0.0, 1 - bound) if values[0] == 0 else Interval(bound, 1.0)
    return bootstrap(values, seed=seed)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided McNemar test: how likely a split at least this uneven is if each of the problems that only one of
    the two solved were a fair coin.
    """
    together = only_first + only_second
    tail = sum(math.comb(together, i) for i in range(min(only_first, only_second) + 1))
    return min(1.0, 2 * tail / 2**together)
