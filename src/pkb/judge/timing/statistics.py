"""From raw samples to a decision. Everything here is recomputable from the samples that a verdict keeps."""

import random
import statistics
from typing import NamedTuple

from pkb.types.timing import Decision

RESAMPLES = 1000
CONFIDENCE = 0.95

GPU_NOISE_US, CPU_NOISE_US = 100.0, 3000.0
"""Per queued call, what the host wall clock may see beyond the reported times: ranks on a CPU share its cores."""

Rounds = list[list[float]]


class Ratio(NamedTuple):
    value: float
    low: float
    high: float

    @property
    def decision(self) -> Decision:
        """Near-ties are called ties: unchanged code wins half of all strict comparisons."""
        if self.low > 1:
            return Decision.FASTER
        return Decision.SLOWER if self.high < 1 else Decision.SAME


def median(rounds: Rounds) -> float:
    return statistics.median(sample for samples in rounds for sample in samples)


def quantile(rounds: Rounds, q: float) -> float:
    ordered = sorted(sample for samples in rounds for sample in samples)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def speedup(reference: Rounds, candidate: Rounds, seed: int = 0) -> Ratio:
    """Ratio of medians with a bootstrap interval.

    Rounds are resampled as pairs (what slows a round down slows both sides), then calls within each round.
    """
    if len(reference) != len(candidate) or not reference:
        raise ValueError("reference and candidate need the same rounds")
    source = random.Random(seed)
    ratios = []
    for _ in range(RESAMPLES):
        chosen = source.choices(range(len(reference)), k=len(reference))
        ours = [sample for i in chosen for sample in source.choices(candidate[i], k=len(candidate[i]))]
        theirs = [sample for i in chosen for sample in source.choices(reference[i], k=len(reference[i]))]
        ratios.append(statistics.median(theirs) / statistics.median(ours))
    ratios.sort()
    cut = (1 - CONFIDENCE) / 2
    low, high = ratios[int(cut * RESAMPLES)], ratios[min(RESAMPLES - 1, int((1 - cut) * RESAMPLES))]
    return Ratio(median(reference) / median(candidate), low, high)


def uncontended(times: list[float]) -> float:
    """What a batch takes when nothing comes between: noise only adds, to a clock that sees the whole machine. The lower
    quartile, but no lower than the third of all, so that no lucky round or two decide; of few rounds the lower median."""
    return sorted(times)[min(max(2, len(times) // 4), (len(times) - 1) // 2)]


class ClockCheck(NamedTuple):
    confirms: bool
    """The host wall clock sees the candidate ahead of the reference."""
    too_long: bool
    """Neither the claimed time on the device nor the claimed time on the host accounts for the time that has passed."""
    split: bool
    """On a machine with one clock for host and device, the two claims contradict each other."""
    reference_us: float
    candidate_us: float
    """Per queued call, without what an empty batch costs."""
    words: str

    @property
    def contradicts(self) -> bool:
        return self.too_long or self.split


class Claim(NamedTuple):
    """One side's times per call, in microseconds: what its ranks report, and what passed on the host wall clock."""

    device_us: float
    host_us: float
    wall_us: list[float]
    """By round, of calls queued back to back, with the call's share of what telling the ranks and hearing from them costs."""

    @property
    def reported_us(self) -> float:
        """Calls queued back to back take as long as the slower of host and device."""
        return max(self.device_us, self.host_us)


def check_clock(reference: Claim, candidate: Claim, empty_us: list[float], *, one_clock: bool = False) -> ClockCheck:
    """Hold the reported times against the host wall clock.

    Nothing that runs in the candidate's process can be trusted with a clock, so a candidate counts as faster only if calls
    queued back to back also take less of the judge's time. And what the ranks report must account for the time that passes,
    less that of empty batches (`empty_us`, per call of a full one): twice what they say, and twice what the reference's ranks
    leave unexplained, is generous. `one_clock`: host and device are the same, as on a CPU, so that the candidate's two
    reported times must agree as well.
    """
    empty = uncontended(empty_us)
    theirs, ours = (max(0.0, uncontended(side.wall_us) - empty) for side in (reference, candidate))
    allowance = max(CPU_NOISE_US if one_clock else GPU_NOISE_US, 2 * (theirs - reference.reported_us))
    too_long = ours > 2 * candidate.reported_us + allowance
    words = f"queued calls on the host wall clock: {theirs:.0f} us for the reference, {ours:.0f} us for the candidate"
    split = one_clock and candidate.device_us < 0.5 * candidate.host_us
    if split:
        words += f"; {candidate.host_us:.0f} us inside a call that is said to take {candidate.device_us:.0f} us"
    return ClockCheck(ahead(reference.wall_us, candidate.wall_us), too_long, split, theirs, ours, words)


def ahead(reference: list[float], candidate: list[float], seed: int = 0) -> bool:
    """Is the candidate faster by these times, one of each side by round? Rounds are resampled as pairs, as for `speedup`."""
    source = random.Random(seed)
    wins = 0
    for _ in range(RESAMPLES):
        chosen = source.choices(range(len(reference)), k=len(reference))
        wins += uncontended([reference[i] for i in chosen]) > uncontended([candidate[i] for i in chosen])
    return wins > RESAMPLES * (1 + CONFIDENCE) / 2
