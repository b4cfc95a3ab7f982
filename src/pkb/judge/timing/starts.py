"""Times in several starts of the ranks, where one start cannot decide.

Rounds of one start share what it fixed: where memory lies, NCCL's channels, which SMs a rank has. How far starts of the same
code differ is known for some calls (`statistics.start_deviation`) and not for others (docs/power.md). For the others, a gain
near 1 is measured in several starts, and the difference between them decides.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pkb.judge.exchange import Exchange
from pkb.judge.timing.statistics import ERROR, LONG_US, Estimate, Ratio, student
from pkb.types.plan import MORE_S
from pkb.types.timing import Decision

NEAR_STARTS = 1.5
"""A side's time has differed by a tenth from start to start (standard deviation): both sides' explain more than this in one
evaluation of two hundred."""
LEAST, MOST = 3, 5
"""Starts of an evaluation that needs more than one. Student's quantile for two is 12.7, for three 4.3, for five 2.8."""


@dataclass(frozen=True)
class Starts:
    restart: Callable[[], Exchange]
    """Ends the ranks of both sides and starts them anew, up to a call that was right."""
    asked: int = 0
    """So many, whatever the first one shows; 0: as many as it takes."""
    known_below_us: float = 0.0
    """For calls of the reference that take less, it is known by how much starts differ."""

    more_s: float = MORE_S
    """What more than the least may take: how many there will be is settled after the second, whatever it shows."""

    @property
    def are_allowed(self) -> bool:
        return self.asked > 1 or self.more_s > 0

    def more(self, first: Estimate, reference_us: float) -> bool:
        """Is a second start needed? Not if there is no gain or loss to confirm."""
        if self.asked:
            return self.asked > 1
        return reference_us >= self.known_below_us and is_near(first.ratio)

    def how_many(self, each_s: float) -> int:
        return self.asked or affordable(each_s, self.more_s)


def affordable(each_s: float, more_s: float = MORE_S) -> int:
    return max(LEAST, min(MOST, 1 + int(more_s / each_s)))


def known_below_us(layer: str, *, shared_gpu: bool) -> float:
    """For calls shorter than this the difference between starts is known: it was measured on a GPU that ranks share, for
    collectives and for short calls."""
    if not shared_gpu:
        return 0.0
    return math.inf if layer == "collective" else LONG_US


def is_near(ratio: Ratio) -> bool:
    return ratio.decision is not Decision.SAME and 1 / NEAR_STARTS < ratio.value < NEAR_STARTS


def over_starts(found: Sequence[Estimate]) -> Estimate:
    """The mean over starts, and Student's interval for it. The difference between starts includes all noise, also that of
    rounds, so no other term is needed.

    Deciding on further starts by what the first one shows does not raise the error rate: the final result is the same as if
    all starts had been made in any case.
    """
    kinds = {kind: _mean([one.by_kind[kind] for one in found]) for kind in found[0].by_kind}
    return Estimate(_mean([one.rounds for one in found]), 0.0, kinds)


def _mean(ratios: Sequence[Ratio]) -> Ratio:
    logs = [math.log(ratio.value) for ratio in ratios]
    middle = statistics.fmean(logs)
    half = student(1 - ERROR, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(*(math.exp(max(-50.0, min(50.0, x))) for x in (middle, middle - half, middle + half)))
