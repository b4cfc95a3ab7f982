"""Two contenders on the same problems, worked out beforehand for every pair, so that a page without a server can show it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pkb.analysis.compare import RunComparison, compare
from pkb.analysis.samples import Sample
from pkb.report.contenders import Contender

MOST_CONTENDERS = 24
"""Pairs grow with the square: 24 make 552 small files."""


class PairRow(NamedTuple):
    """A problem, and the speedup of each with its interval."""

    problem: int
    answer: str
    why: str
    first: list[float] | None
    second: list[float] | None


@dataclass(frozen=True)
class Reading:
    summary: str
    p: float
    rows: list[PairRow]


class Pair(NamedTuple):
    first: Contender
    second: Contender
    readings: dict[str, Reading]
    """By k: one try each, and the best of as many as both have."""


def compared_contenders(everybody: Sequence[Contender]) -> list[Contender]:
    return list(everybody[:MOST_CONTENDERS])


def pairs(everybody: Sequence[Contender]) -> Iterator[Pair]:
    """Both directions: `better` and `worse` are the second's, seen from the first."""
    chosen = compared_contenders(everybody)
    for first in chosen:
        for second in chosen:
            if first is second:
                continue
            ks = sorted({1, max(1, min(first.most_tries, second.most_tries))})
            yield Pair(first, second, {str(k): _reading(compare(first.samples, second.samples, k=k)) for k in ks})


def _reading(comparison: RunComparison) -> Reading:
    rows = [PairRow(row.problem, row.answer, row.why, _speed(row.first), _speed(row.second)) for row in comparison.rows]
    return Reading(comparison.summary, comparison.p_value, rows)


def _speed(sample: Sample | None) -> list[float] | None:
    if sample is None or sample.speed is None:
        return None
    return [round(sample.speed.value, 4), round(sample.speed.low, 4), round(sample.speed.high, 4)]
