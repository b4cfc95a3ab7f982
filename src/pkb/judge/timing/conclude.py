"""From the rounds and the host wall clock to the times of a verdict, or to a rejection of what physics does not allow."""

from collections.abc import Sequence

from pkb.judge.decision import Decided
from pkb.judge.timing.clock import WallTimes
from pkb.judge.timing.rounds import CallTimes, Round
from pkb.judge.timing.sides import Sides
from pkb.judge.timing.statistics import Claim, ClockCheck, check_clock, median, quantile, speedup
from pkb.types.verdict import Decision, Evidence, Failure, FailureKind, Stage, Timing, Verdict


def hold_against_wall_clock(rounds: Sequence[Round], walls: WallTimes, *, on_gpu: bool) -> ClockCheck:
    reference, candidate = (
        Claim(median([times.calls_us for times in side]), median([times.host_us for times in side]), wall_us)
        for side, wall_us in zip(_by_side(rounds), (walls.reference_us, walls.candidate_us), strict=True)
    )
    return check_clock(reference, candidate, walls.empty_us, one_clock=not on_gpu)


def conclude(
    rounds: Sequence[Round],
    walls: WallTimes,
    clock: ClockCheck,
    *,
    floor_us: float | None,
    note: str,
    first_call_us: float | None,
) -> Timing:
    by_reference, by_candidate = _by_side(rounds)
    reference_us = [times.calls_us for times in by_reference]
    candidate_us = [times.calls_us for times in by_candidate]
    ratio = speedup(reference_us, candidate_us)
    timing = Timing(
        reference_us=median(reference_us),
        candidate_us=median(candidate_us),
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
    )
    if clock.contradicts:
        why = f"the reported times do not account for the time that passed: {clock.words}"
        raise _rejected(timing, FailureKind.CLOCK, clock.words, why)
    late = median([times.settled_us for times in by_candidate])
    usual = median([times.settled_us for times in by_reference])
    if late > usual + max(20.0, 0.25 * timing.candidate_us) and late > 3 * usual:
        text = f"the device went on working for {late:.0f} us after the end of a call ({usual:.0f} us is usual)"
        raise _rejected(timing, FailureKind.HIDDEN_WORK, text, f"work outside the timed stream: {text}")
    if floor_us is not None and timing.candidate_us < floor_us:
        text = f"{timing.candidate_us:.2f} us is below the physical floor of {floor_us:.2f} us"
        raise _rejected(timing, FailureKind.FLOOR, text, text)
    return timing


def _by_side(rounds: Sequence[Round]) -> Sides[list[CallTimes]]:
    return Sides([one.times.reference for one in rounds], [one.times.candidate for one in rounds])


def _rejected(timing: Timing, kind: FailureKind, text: str, why: str) -> Decided:
    return Decided(Verdict.REJECTED, Stage.TIMING, why, Evidence(timing=timing, failure=Failure(kind, text)))
