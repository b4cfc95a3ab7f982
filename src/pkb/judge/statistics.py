"""From raw samples to a decision. Everything here is recomputable from the samples that a verdict keeps."""

import random
import statistics
from typing import NamedTuple

RESAMPLES = 1000
CONFIDENCE = 0.95

MIN_CLAIM_US = 100.0
"""Per round: less cannot be told from the cost of a message."""

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
    agrees: bool
    resolved: bool
    """Large enough against the wall clock's noise for the claim to be confirmed or refuted."""
    words: str


def clocks_agree(
    *, reference_us: Rounds, candidate_us: Rounds, reference_wall_us: list[float], candidate_wall_us: list[float]
) -> ClockCheck:
    """Is the time that the candidate claims to save also saved on the judge's own clock?

    Both sides run the same batches with the same overhead, so wall-clock time saved per round must be about the sum of what
    the calls saved. A rank that reports smaller times than it took saves nothing there. Half of the claim must be seen. A
    claim within four standard errors of the wall clock can neither be confirmed nor refuted, and is said to be unproven.
    """
    claims = [sum(r) - sum(c) for r, c in zip(reference_us, candidate_us, strict=True)]
    seen = [r - c for r, c in zip(reference_wall_us, candidate_wall_us, strict=True)]
    claim, saved = statistics.median(claims), statistics.median(seen)
    missing = [c - s for c, s in zip(claims, seen, strict=True)]
    lost = statistics.median(missing)
    spread = statistics.median(abs(value - lost) for value in missing)
    # Standard error of a median, from the median absolute deviation of normal values.
    noise = 4 * 1.2533 * 1.4826 * spread / len(missing) ** 0.5
    words = f"claimed saving {claim / 1e3:.2f} ms a round, {saved / 1e3:.2f} ms seen on the judge's clock"
    if claim <= max(noise, MIN_CLAIM_US):
        return ClockCheck(True, False, f"{words}; within its noise of {noise / 1e3:.2f} ms")
    return ClockCheck(lost <= 0.5 * claim, True, words)
