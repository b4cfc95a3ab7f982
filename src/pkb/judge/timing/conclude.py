"""From the rounds and the host wall clock to the times of a verdict, or to a rejection of impossible times."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pkb.judge.decision import Decided
from pkb.judge.timing.clock import WallTimes
from pkb.judge.timing.rounds import CallTimes, Round
from pkb.judge.timing.sides import Sides
from pkb.judge.timing.statistics import (
    Claim,
    ClockCheck,
    Estimate,
    Paired,
    check_clock,
    mean,
    quantile,
    student,
)
from pkb.types.stock import Against
from pkb.types.timing import KindSpeedup
from pkb.types.verdict import Decision, Evidence, Failure, FailureKind, Stage, Timing, Verdict

DRIFT_ERROR = 0.001
"""Of calling clocks different that are one, on each side and for each rank."""


class Measured(NamedTuple):
    rounds: Sequence[Round]
    walls: WallTimes
    shares: Mapping[str, float]
    against: Against = "reference"
    start_rounds: tuple[int, ...] = ()


def paired(rounds: Sequence[Round], shares: Mapping[str, float]) -> Paired:
    reference, candidate = ([times.calls_us for times in side] for side in _by_side(rounds))
    return Paired(reference, candidate, [one.kinds for one in rounds], shares or {"": 1.0})


def hold_against_wall_clock(measured: Measured, *, on_gpu: bool, error: float) -> ClockCheck:
    rounds, walls, shares, against, _ = measured
    samples = paired(rounds, shares)
    reference, candidate = (
        Claim(mean([times.calls_us for times in side]), mean([times.host_us for times in side]), wall_us, *quoted_us)
        for side, wall_us, *quoted_us in zip(
            _by_side(rounds),
            (walls.reference_us, walls.candidate_us),
            samples.typical_us(),
            samples.most_us(),
            strict=True,
        )
    )
    return check_clock(reference, candidate, walls.empty_us, one_clock=not on_gpu, error=error, against=against)


def conclude(
    measured: Measured,
    found: Estimate,
    clock: ClockCheck,
    *,
    floor_us: float | None,
    note: str,
    first_call_us: float | None,
) -> Timing:
    rounds, walls, shares, against, start_rounds = measured
    by_reference, by_candidate = _by_side(rounds)
    samples = paired(rounds, shares)
    reference_us, candidate_us = samples.reference_us, samples.candidate_us
    ratio, (theirs_us, ours_us), medians = found.ratio, samples.typical_us(), samples.medians()
    timing = Timing(
        reference_us=theirs_us,
        candidate_us=ours_us,
        speedup=ratio.value,
        speedup_low=ratio.low,
        speedup_high=ratio.high,
        decision=Decision.UNPROVEN if ratio.decision is Decision.FASTER and not clock.confirms else ratio.decision,
        calls=sum(map(len, reference_us)),
        rounds=len(rounds),
        reference_p10_us=quantile(reference_us, 0.1),
        reference_p90_us=quantile(reference_us, 0.9),
        candidate_p10_us=quantile(candidate_us, 0.1),
        candidate_p90_us=quantile(candidate_us, 0.9),
        floor_us=floor_us,
        reference_wall_us=clock.reference_us,
        candidate_wall_us=clock.candidate_us,
        clock_agreement=clock.words,
        first_call_us=first_call_us,
        reference_samples_us=tuple(map(tuple, reference_us)),
        candidate_samples_us=tuple(map(tuple, candidate_us)),
        reference_walls_us=tuple(walls.reference_us),
        candidate_walls_us=tuple(walls.candidate_us),
        empty_walls_us=tuple(walls.empty_us),
        note=note,
        speedup_by_kind={
            kind: KindSpeedup(shares[kind], *medians[kind], *found.by_kind[kind]) for kind in found.by_kind
        },
        sample_kinds=tuple(tuple(one.kinds) for one in rounds) if found.by_kind else (),
        window_speedup=_finite(clock.window.value),
        window_speedup_low=_finite(clock.window.low),
        window_speedup_high=_finite(clock.window.high),
        clock_drift_ppm=seen_drift_ppm([one.drift_ppm for one in rounds]),
        against=against,
        start_rounds=start_rounds,
    )
    if clock.contradicts:
        why = f"the reported times do not account for the time that passed: {clock.words}"
        raise _rejected(timing, FailureKind.CLOCK, clock.words, why)
    late, usual = (
        statistics.median(us for times in side for us in times.settled_us) for side in (by_candidate, by_reference)
    )
    if late > usual + max(20.0, 0.25 * timing.candidate_us) and late > 3 * usual:
        text = f"the device went on working for {late:.0f} us after the end of a call ({usual:.0f} us is usual)"
        raise _rejected(timing, FailureKind.HIDDEN_WORK, text, f"work outside the timed stream: {text}")
    if floor_us is not None and timing.candidate_us < floor_us:
        text = f"{timing.candidate_us:.2f} us is below the physical floor of {floor_us:.2f} us"
        raise _rejected(timing, FailureKind.FLOOR, text, text)
    return timing


def _by_side(rounds: Sequence[Round]) -> Sides[list[CallTimes]]:
    return Sides([one.times.reference for one in rounds], [one.times.candidate for one in rounds])


def _finite(ratio: float) -> float | None:
    return ratio if ratio < float("inf") else None


def seen_drift_ppm(rounds: Sequence[Sequence[float]]) -> float | None:
    """The drift of the rank whose clock differs most from the first rank's, if rounds agree that it does: ranks start some
    microseconds apart, which over the two calls of a round at `real` looks like thousands of ppm, even on one GPU."""
    seen = [0.0]
    for slopes in zip(*rounds, strict=True):
        if len(slopes) > 1:
            error = student(1 - DRIFT_ERROR, len(slopes) - 1) * statistics.stdev(slopes) / math.sqrt(len(slopes))
            apart = abs(statistics.fmean(slopes))
            seen.append(apart if apart > error else 0.0)
    return max(seen) or None


def _rejected(timing: Timing, kind: FailureKind, text: str, why: str) -> Decided:
    return Decided(Verdict.REJECTED, Stage.TIMING, why, Evidence(timing=timing, failure=Failure(kind, text)))
