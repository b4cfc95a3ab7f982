"""From raw samples to a decision. Everything here is recomputable from the samples that a verdict keeps; docs/measuring.md
derives it."""

import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pkb.types.stock import Against
from pkb.types.timing import Decision

RESAMPLES = 1000
ERROR = 0.025
"""How often a candidate may be called faster that is as fast as the reference; and slower likewise."""
NEAR = 1.03
"""What is within this factor of 1 is no difference worth more rounds."""
SHORT_US, LONG_US, SHORT_START, LONG_START = 150.0, 200.0, 0.02, 0.005
"""By how much (standard deviation of the logarithm) a side's time differs from one start of its ranks to another, for calls
of `SHORT_US` and less, and of `LONG_US` and more: docs/records/starts.jsonl, rounded up (docs/power.md). No step in between: it
would call a call that is slower by a microsecond faster."""

GPU_NOISE_US, CPU_NOISE_US = 100.0, 3000.0
"""Per queued call, what the host wall clock may see beyond the reported times: ranks on a CPU share its cores."""
UNSEEN = 1.1
"""A claim may exceed by this factor what the window has excluded, where the window alone cannot tell the candidate from the
reference: the most that forged times can gain."""
TRIMMED = 0.2
"""Of rounds' medians and of batches on the host wall clock, at either end."""
MOST_RATIO = 1e4

Rounds = Sequence[Sequence[float]]


class Ratio(NamedTuple):
    value: float
    low: float
    high: float

    @property
    def decision(self) -> Decision:
        """An interval that includes 1 is a tie: unchanged code wins half of all strict comparisons."""
        if self.low > 1:
            return Decision.FASTER
        return Decision.SLOWER if self.high < 1 else Decision.SAME

    def widened(self, half: float) -> "Ratio":
        """Adds an independent error: in the logarithm, squares of half-widths add up."""
        wide = math.exp(math.hypot(math.log(self.high / self.value), half))
        return Ratio(self.value, self.value / wide, self.value * wide)


class Paired(NamedTuple):
    """Times of both sides in microseconds, by round and call: the calls of a round had the same arguments on both sides."""

    reference_us: Rounds
    candidate_us: Rounds
    kinds: Sequence[Sequence[str]] = ()
    """Of the same calls; empty where the problem has one kind only."""
    shares: Mapping[str, float] = {"": 1.0}
    """The weight of each kind."""

    def kinds_of(self, number: int) -> Sequence[str]:
        return self.kinds[number] if self.kinds else [""] * len(self.reference_us[number])

    def log_ratios(self) -> list[dict[str, list[float]]]:
        """The log ratio of each call, by round and kind."""
        found: list[dict[str, list[float]]] = []
        for number, sides in enumerate(zip(self.reference_us, self.candidate_us, strict=True)):
            by_kind: dict[str, list[float]] = {}
            for theirs, ours, kind in zip(*sides, self.kinds_of(number), strict=True):
                by_kind.setdefault(kind, []).append(math.log(theirs / ours))
            found.append(by_kind)
        return found

    def medians(self) -> dict[str, tuple[float, float]]:
        """Medians of the reference and the candidate, by kind, in the order in which the problem names them."""
        return {
            kind: (statistics.median(theirs), statistics.median(ours)) for kind, (theirs, ours) in self._times().items()
        }

    def _times(self) -> dict[str, tuple[list[float], list[float]]]:
        times: dict[str, tuple[list[float], list[float]]] = {}
        for number, sides in enumerate(zip(self.reference_us, self.candidate_us, strict=True)):
            for theirs, ours, kind in zip(*sides, self.kinds_of(number), strict=True):
                both = times.setdefault(kind, ([], []))
                both[0].append(theirs)
                both[1].append(ours)
        return {kind: times[kind] for kind in self.shares if kind in times}

    def typical_us(self) -> tuple[float, float]:
        """The typical time of a call of each side: the weighted mean over kinds of the medians."""
        return self._weighted(self.medians())

    def most_us(self) -> tuple[float, float]:
        """The same with means of all but the slowest tenth: a median ignores what nearly half of the calls take."""
        return self._weighted(
            {kind: (_of_most(theirs), _of_most(ours)) for kind, (theirs, ours) in self._times().items()}
        )

    def _weighted(self, by_kind: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
        total = sum(self.shares[kind] for kind in by_kind)
        theirs, ours = (
            sum(self.shares[kind] * both[side] for kind, both in by_kind.items()) / total for side in (0, 1)
        )
        return theirs, ours


def _of_most(times: Sequence[float]) -> float:
    return statistics.fmean(sorted(times)[: max(1, math.ceil(0.9 * len(times)))])


class Estimate(NamedTuple):
    rounds: Ratio
    """Its interval is by rounds alone, all of one start."""
    start: float
    """Half of the interval, in the logarithm, that another start may add."""
    by_kind: dict[str, Ratio]

    @property
    def ratio(self) -> Ratio:
        return self.rounds.widened(self.start)


def start_deviation(us: float) -> float:
    part = math.log(us / SHORT_US) / math.log(LONG_US / SHORT_US)
    return SHORT_START + min(1.0, max(0.0, part)) * (LONG_START - SHORT_START)


def start_half(medians: Mapping[str, tuple[float, float]], shares: Mapping[str, float]) -> float:
    """Half-width for another start of the ranks. The kinds of a side share its start, so their deviations add up. It uses the
    whole of `ERROR`, because all looks share one start (and together err 1.4 times as often, if rounds differ as much)."""
    total = sum(shares[kind] for kind in medians)
    sides = (sum(shares[kind] * start_deviation(us[side]) for kind, us in medians.items()) / total for side in (0, 1))
    return statistics.NormalDist().inv_cdf(1 - ERROR) * math.hypot(*sides)


def estimate(samples: Paired, error: float = ERROR, *, seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """The weighted mean over kinds of the median log ratio of paired calls, with its interval.

    Whole rounds are resampled, because what slows a round down slows all of its calls, on both sides. Resampling calls within
    rounds as well would count their differences twice; only a single round is resampled by calls. The interval is symmetric in
    the logarithm, so swapping the sides inverts it, and as wide as Student's quantile for this number of rounds says.
    """
    logs = samples.log_ratios()
    if not logs or not all(logs):
        raise ValueError("reference and candidate need the same rounds, with calls in each")
    present = {kind for one in logs for kind in one}
    weights = {kind: share for kind, share in samples.shares.items() if kind in present}
    centre = _medians(logs, weights)
    source = random.Random(seed)
    drawn: list[dict[str, float]] = []
    while len(drawn) < resamples:
        chosen = source.choices(logs, k=len(logs))
        if len(weights) > 1 and len({kind for one in chosen for kind in one}) < len(weights):
            continue  # a kind that few rounds have is in none of these
        if len(logs) == 1:
            chosen = [{kind: source.choices(x, k=len(x)) for kind, x in logs[0].items()}]
        drawn.append(_medians(chosen, weights))
    rounds, degrees = len(logs), max(1, len(logs) - 1)
    calls = {kind: sum(len(one.get(kind, ())) for one in logs) for kind in weights}

    def interval(of: Mapping[str, float]) -> Ratio:
        total = sum(of.values())
        middle = sum(weight * centre[kind] for kind, weight in of.items()) / total
        deviations = [sum(weight * one[kind] for kind, weight in of.items()) / total - middle for one in drawn]
        by_round = [
            sum(
                weight * rounds * len(one[kind]) / calls[kind] * (statistics.median(one[kind]) - centre[kind])
                for kind, weight in of.items()
                if kind in one
            )
            / total
            for one in logs
        ]
        resampled = math.sqrt(math.fsum(d * d for d in deviations) / len(deviations))
        half = max(
            student(1 - error, degrees) * math.sqrt(rounds / degrees) * resampled,
            math.sqrt(math.pi / 2) * trimmed_mean(by_round, error).half if rounds > 1 else 0.0,
        )
        return Ratio(*(math.exp(max(-50.0, min(50.0, x))) for x in (middle, middle - half, middle + half)))

    by_kind: dict[str, Ratio] = {}
    if len(weights) > 1:
        by_kind = {
            kind: interval({kind: 1.0}).widened(start_half({kind: us}, weights))
            for kind, us in samples.medians().items()
        }
    return Estimate(interval(weights), start_half(samples.medians(), weights), by_kind)


def _medians(logs: Sequence[Mapping[str, Sequence[float]]], kinds: Mapping[str, float]) -> dict[str, float]:
    return {kind: statistics.median([x for one in logs for x in one.get(kind, ())]) for kind in kinds}


def student(probability: float, degrees: int) -> float:
    """The quantile of Student's distribution; exact for 1 and 2 degrees of freedom, by Cornish and Fisher's series above."""
    if degrees == 1:
        return math.tan(math.pi * (probability - 0.5))
    if degrees == 2:
        a = 2 * probability - 1
        return a * math.sqrt(2 / (1 - a * a))
    z, n = statistics.NormalDist().inv_cdf(probability), degrees
    series = (
        z,
        (z**3 + z) / (4 * n),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3),
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * n**4),
    )
    return sum(series)


def quantile(rounds: Rounds, q: float) -> float:
    ordered = sorted(sample for samples in rounds for sample in samples)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def mean(rounds: Rounds) -> float:
    return statistics.fmean(sample for samples in rounds for sample in samples)


# -- the host wall clock ------------------------------------------------------------------------------------------------


def uncontended(times: Sequence[float]) -> float:
    """The time of a batch without interference. Noise only adds time on a clock that sees the whole machine, so this is the
    mean of the lower half, without the lowest eighth, so that no lucky round decides."""
    return statistics.fmean(sorted(times)[len(times) // 8 : (len(times) + 1) // 2])


class WindowRatio(NamedTuple):
    """(reference - empty) / (candidate - empty) on the host wall clock; infinite if the candidate's difference may be 0."""

    value: float
    low: float
    high: float

    def supports(self, claimed: float) -> bool:
        """Does the window agree with the ranks' clocks, or at least show that the candidate is ahead? `NEAR` is how far its
        trimmed means and the ranks' medians may differ, if the noise of the two sides has different shapes.

        A wide interval covers every claim. So a claim that the window alone cannot place above 1 may be at most `UNSEEN` times
        what it excludes.
        """
        covers = self.low / NEAR <= claimed <= self.high * NEAR
        return self.low > NEAR or (covers and claimed <= UNSEEN * self.low)


def window_ratio(
    reference_us: Sequence[float],
    candidate_us: Sequence[float],
    empty_us: Sequence[float],
    error: float = ERROR,
) -> WindowRatio:
    """The window's speedup from batches by round; the candidate has one batch in each, the others one or several.

    Fieller's interval: the ratios x for which (reference - empty) - x (candidate - empty) may be 0, each side by the trimmed
    mean of its batches, the error by the jackknife over rounds. It is valid for few rounds, and has no upper end if the
    candidate's difference may be 0.
    """
    count = len(candidate_us)
    sides = [_by_round(side, count) for side in (reference_us, candidate_us, empty_us)]

    def net(rounds: Sequence[int]) -> tuple[float, float]:
        theirs, ours, nothing = (statistics.fmean(_trimmed(us for n in rounds for us in side[n])) for side in sides)
        return theirs - nothing, ours - nothing

    theirs, ours = net(range(count))
    left_out = [net([n for n in range(count) if n != out]) for out in range(count)] if count > 1 else [(0.0, 0.0)] * 2
    first, second = zip(*left_out, strict=True)
    of_theirs, of_both, of_ours = map(statistics.covariance, (first, first, second), (first, second, second))
    wide = student(1 - error, max(1, len(_trimmed(candidate_us)) - 1)) * (count - 1) / math.sqrt(count)

    def above(x: float, direction: int) -> bool:
        """Is the ratio above x? With direction 1: may it be; with -1: must it be?"""
        half = wide * math.sqrt(max(0.0, of_theirs - 2 * x * of_both + x * x * of_ours))
        return theirs - x * ours + direction * half > 0

    def end(direction: int) -> float:
        if above(MOST_RATIO, direction):
            return math.inf
        if not above(1 / MOST_RATIO, direction):
            return 0.0
        low, high = -math.log(MOST_RATIO), math.log(MOST_RATIO)
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (middle, high) if above(math.exp(middle), direction) else (low, middle)
        return math.exp(low)

    return WindowRatio(end(0), end(-1), end(1)) if count > 1 else WindowRatio(end(0), 0.0, math.inf)


def _by_round(times: Sequence[float], rounds: int) -> list[Sequence[float]]:
    each = max(1, len(times) // rounds)
    return [times[each * n : each * (n + 1)] or [0.0] for n in range(rounds)]


def _trimmed(values: Iterable[float]) -> list[float]:
    """In order, without a fifth at either end."""
    ordered = sorted(values)
    cut = int(TRIMMED * len(ordered))
    return ordered[cut : len(ordered) - cut]


class Mean(NamedTuple):
    value: float
    half: float  # of its interval; infinite for one number


def trimmed_mean(values: Sequence[float], error: float) -> Mean:
    """The mean without a fifth at either end, and Yuen's interval for it: a single outlier affects neither."""
    count, kept = len(values), _trimmed(values)
    cut = (count - len(kept)) // 2
    middle = statistics.fmean(kept)
    if len(kept) < 2:
        return Mean(middle, math.inf)
    spread = statistics.stdev([kept[0]] * cut + kept + [kept[-1]] * cut)
    error_of_mean = spread * math.sqrt((count - 1) / (len(kept) * (len(kept) - 1)))
    return Mean(middle, student(1 - error, len(kept) - 1) * error_of_mean)


class Claim(NamedTuple):
    """One side's times per call, in microseconds: what its ranks report, and what passed on the host wall clock."""

    device_us: float
    """The mean: sums are what a clock can be held against, whatever kinds of calls there are."""
    host_us: float
    wall_us: Sequence[float]
    """By round, of calls queued back to back, with the call's share of what an empty batch costs."""
    quoted_us: float | None = None
    """What the speedup is computed from, if that is not the mean."""
    most_us: float | None = None
    """The mean of all calls but the slowest tenth."""

    @property
    def reported_us(self) -> float:
        """Calls queued back to back take as long as the slower of host and device."""
        return max(self.device_us, self.host_us)

    @property
    def quoted(self) -> float:
        return self.device_us if self.quoted_us is None else self.quoted_us

    @property
    def most(self) -> float:
        return self.quoted if self.most_us is None else self.most_us


class ClockCheck(NamedTuple):
    confirms: bool
    """The window does not contradict that the candidate is ahead, by as much as is quoted."""
    too_long: bool
    """Neither the claimed time on the device nor the claimed time on the host accounts for the time that has passed."""
    split: bool
    """On a machine with one clock for host and device, the two claims contradict each other."""
    reference_us: float
    candidate_us: float
    """Per queued call, without what an empty batch costs."""
    window: WindowRatio
    words: str

    @property
    def contradicts(self) -> bool:
        return self.too_long or self.split


def check_clock(
    reference: Claim,
    candidate: Claim,
    empty_us: Sequence[float],
    *,
    one_clock: bool = False,
    error: float = ERROR,
    against: Against = "reference",
) -> ClockCheck:
    """Hold the reported times against the host wall clock.

    Nothing that runs in the candidate's process can be trusted with a clock, so a candidate counts as faster only if the window
    supports it. And what the ranks report must account for the time that passes, less that of empty batches (`empty_us`, per
    call of a full one): twice what they say, and twice what the reference's ranks leave unexplained, is generous. What is
    quoted must do so too, or it proves nothing: a few calls with all of the time in them would leave any median to the rest.
    And who is ahead by medians only, with many calls that take longer, is not ahead: the sums of most calls must say so too.
    `one_clock`: host and device are the same, as on a CPU, so that the candidate's two reported times must agree as well.
    """
    empty = uncontended(empty_us)
    theirs, ours = (max(0.0, uncontended(side.wall_us) - empty) for side in (reference, candidate))
    allowance = max(CPU_NOISE_US if one_clock else GPU_NOISE_US, 2 * (theirs - reference.reported_us))
    too_long = ours > 2 * candidate.reported_us + allowance
    window = window_ratio(reference.wall_us, candidate.wall_us, empty_us, error)
    accounted = ours <= 2 * max(candidate.quoted, candidate.host_us) + allowance
    quoted, in_sum = reference.quoted / candidate.quoted, reference.most / candidate.most
    confirms = accounted and in_sum > 1 and window.supports(quoted)
    words = f"queued calls on the host wall clock: {theirs:.0f} us for the {against}, {ours:.0f} us for the candidate"
    if quoted > UNSEEN * in_sum:
        words += f"; {in_sum:.2f}x, not {quoted:.2f}x, by the sum of all timed calls but the slowest tenth"
    split = one_clock and candidate.device_us < 0.5 * candidate.host_us
    if split:
        words += f"; {candidate.host_us:.0f} us inside a call that is said to take {candidate.device_us:.0f} us"
    return ClockCheck(confirms, too_long, split, theirs, ours, window, words)
