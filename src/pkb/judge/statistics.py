"""From raw samples to a decision. Everything here is recomputable from the samples that a verdict keeps."""

import random
import statistics
from typing import NamedTuple

RESAMPLES = 1000
CONFIDENCE = 0.95

GPU_NOISE_US, CPU_NOISE_US = 100.0, 3000.0
"""Per queued call, what the judge's clock may see beyond the reported times: ranks on a CPU share its cores with each other."""

Rounds = list[list[float]]


class Ratio(NamedTuple):
    value: float
    low: float
    high: float

    @property
    def decision(self) -> str:
        """Near-ties are called ties: unchanged code wins half of all strict comparisons."""
        if self.low > 1:
            return "faster"
        return "slower" if self.high < 1 else "same"


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


class ClockCheck(NamedTuple):
    confirms: bool
    """The judge's own clock sees the candidate ahead of the reference."""
    contradicts: bool
    """Neither the claimed time on the device nor the claimed time on the host accounts for the time that has passed."""
    words: str


class Claim(NamedTuple):
    """One side's times per call, in microseconds: what its ranks report, and what passed on the judge's clock."""

    device_us: float
    host_us: float
    wall_us: list[float]
    """By round, of calls queued back to back."""

    @property
    def reported_us(self) -> float:
        """Calls queued back to back take as long as the slower of host and device."""
        return max(self.device_us, self.host_us)

    @property
    def unexplained_us(self) -> float:
        return max(0.0, statistics.median(self.wall_us) - self.reported_us)


def check_clock(reference: Claim, candidate: Claim, *, one_clock: bool = False) -> ClockCheck:
    """Hold the reported times against the judge's own clock.

    Nothing that runs in the candidate's process can be trusted with a clock, so a candidate counts as faster only if calls
    queued back to back also take less of the judge's time. And what the ranks report must account for the time that passes:
    twice what they say, and twice what telling the reference's ranks and hearing from them costs, is generous. `one_clock`:
    host and device are the same, as on a CPU, so the two reported times must agree as well.
    """
    # A round in which telling the ranks took as long as their calls has measured nothing.
    pairs = [(r, c) for r, c in zip(reference.wall_us, candidate.wall_us, strict=True) if r > 0 and c > 0]
    measured = 2 * len(pairs) > len(reference.wall_us)
    ahead = measured and speedup([[r] for r, _ in pairs], [[c] for _, c in pairs]).low > 1
    theirs, ours = statistics.median(reference.wall_us), statistics.median(candidate.wall_us)
    words = f"queued calls on the judge's clock: {theirs:.0f} us for the reference, {ours:.0f} us for the candidate"
    allowance = max(CPU_NOISE_US if one_clock else GPU_NOISE_US, 2 * reference.unexplained_us)
    contradicts = ours > 2 * candidate.reported_us + allowance
    if one_clock and candidate.device_us < 0.5 * candidate.host_us:
        contradicts, words = (
            True,
            f"{words}; {candidate.host_us:.0f} us inside a call that is said to take {candidate.device_us:.0f} us",
        )
    return ClockCheck(ahead, contradicts, words)
