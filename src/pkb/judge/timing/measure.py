"""Stage 5: reference and candidate in alternating rounds, every call on data it has not seen.

A call's time is its latest end minus its earliest start over all ranks. The ranks report times; the judge holds its own clock
against them, verifies a share of the timed outputs chosen after the fact, and rejects what physics does not allow.
"""

import itertools
import math
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from pkb.judge.decision import Decided
from pkb.judge.exchange import Exchange, Outcome, Reports
from pkb.judge.stages.correctness import communication
from pkb.judge.timing.statistics import Claim, ClockCheck, Rounds, check_clock, median, quantile, speedup
from pkb.types.plan import Plan
from pkb.types.protocol.commands import DrawSpec, Schedule
from pkb.types.protocol.replies import BatchReport, Stamps
from pkb.types.verdict import Communication, Failure, Stage, Timing, Verdict

MAX_COVER_US = 5_000.0
EMPTY_BATCHES = 3
"""In each round: what a batch costs beside its calls must be known better than the calls themselves."""


class Runner(Protocol):
    """`Exchange.run_oracle` or `Exchange.run_candidate`."""

    def __call__(self, schedule: Schedule, *, extra_s: float = 0.0) -> Reports: ...


@dataclass
class Side:
    """Samples of one side, in microseconds, by round."""

    calls_us: Rounds = field(default_factory=list)
    settled_us: Rounds = field(default_factory=list)
    host_us: Rounds = field(default_factory=list)
    wall_us: list[float] = field(default_factory=list)
    """Per call, of calls queued back to back, on the judge's clock: telling the ranks and hearing from them included."""

    def keep(self, rounds: list[bool]) -> None:
        for samples in (self.calls_us, self.settled_us, self.host_us):
            samples[:] = itertools.compress(samples, rounds)

    def claim(self) -> Claim:
        return Claim(median(self.calls_us), median(self.host_us), self.wall_us)


def measure(
    exchange: Exchange,
    spec: DrawSpec,
    *,
    plan: Plan,
    calls: int,
    rounds: int,
    on_gpu: bool,
    floor_us: float | None,
    note: str,
    first_call_us: float | None,
    progress: Callable[[str], None],
) -> tuple[Timing, Communication]:
    """The times, and what moved the data while they were taken."""
    reference, candidate = Side(), Side()
    empty_us: list[float] = []
    progress(f"timing: {plan.warmup_calls} warm-up calls")
    needed_us = _warm_up(exchange, spec, plan, calls)
    cover_us = needed_us if on_gpu else 0.0  # a CPU has no queue to fill
    source = random.SystemRandom()
    seen = Communication.NONE
    sides: list[tuple[Side, Runner]] = [(reference, exchange.run_oracle), (candidate, exchange.run_candidate)]
    together: list[bool] = []  # by round: all ranks of the reference counted from the same moment
    while sum(together) < rounds and len(together) < 2 * rounds:
        progress(f"timing: round {sum(together) + 1} of {rounds}")
        slots = exchange.deliver(spec, calls, keep=True)
        schedule = Schedule(slots, aligned=True, digests=True, cover_us=cover_us)
        answers = {}
        for side, run in sides:
            answers[side is candidate] = _timed(
                partial(run, schedule, extra_s=30), side, calls, judged=side is candidate
            )
        # If not, its times are too long, which would be to the candidate's credit. What the candidate says of its own zero can
        # only harm it, and is not asked: it could have its slow rounds left out.
        together.append(common_zero(answers[False]))
        seen = seen if seen is Communication.LIBRARY else communication(answers[True])
        # Only when both sides are through: a truth takes the memory that the reference has grown used to. The candidate's
        # fingerprints came with its times, so that it gains nothing by the wait.
        _verify(exchange, slots, answers[True], plan.verify_share, source)
        exchange.drop(keep_memory=True)  # at production sizes there is no room for two batches
        _queue(exchange, spec, calls, sides, empty_us, plan.verify_share, source)
        if together[-1]:
            sides.reverse()  # ABBA: drift over a pair of rounds falls on both sides alike

    enough = 2 * sum(together) >= rounds
    if enough:
        reference.keep(together)
        candidate.keep(together)
    else:
        kept = f"the reference's ranks began together in {sum(together)} of {len(together)} rounds"
        note = "; ".join(filter(None, [note, f"the machine was too busy: {kept}, and its times may be too long"]))

    def held_against_ours() -> ClockCheck:
        return check_clock(reference.claim(), candidate.claim(), empty_us, one_clock=not on_gpu)

    clock = held_against_ours()
    if clock.too_long:
        # Nobody is called a liar for some rounds in which the machine had other things to do.
        for number in range(rounds):
            progress(f"timing: queued calls take too long; once more, round {number + 1} of {rounds}")
            _queue(exchange, spec, calls, sides, empty_us, plan.verify_share, source)
            sides.reverse()
        clock = held_against_ours()
    clock = clock._replace(confirms=clock.confirms and enough)  # it confirms no gain over times that are too long
    return _conclude(reference, candidate, clock, empty_us, calls, floor_us, note, first_call_us), seen


def _queue(
    exchange: Exchange,
    spec: DrawSpec,
    calls: int,
    sides: list[tuple[Side, Runner]],
    empty_us: list[float],
    share: float,
    source: random.Random,
) -> None:
    """A batch of fresh calls back to back on each side, by the judge's clock."""
    slots = exchange.deliver(spec, calls, keep=True)
    exchange.wake()
    for _ in range(EMPTY_BATCHES):  # asked of the oracle: a candidate could take its time over nothing
        empty_us.append(_wall_us(partial(exchange.run_oracle, Schedule(()))) / calls)
    for side, run in sides:
        exchange.wake()
        side.wall_us.append(_wall_us(partial(run, Schedule(slots), extra_s=30)) / calls)
    _verify_queued(exchange, slots, share, source)
    exchange.drop(keep_memory=True)


def _wall_us(run: Callable[[], Reports]) -> float:
    start = time.perf_counter_ns()
    run()
    return (time.perf_counter_ns() - start) / 1e3


def _warm_up(exchange: Exchange, spec: DrawSpec, plan: Plan, calls: int) -> float:
    """Plain calls to warm clocks and caches of both sides, then one round like the timed ones, which leaves the allocator
    with the memory that a round needs. Returns how long the device must be kept busy to cover the host's part of a call."""
    slots = exchange.deliver(spec, calls, keep=True)
    repeated = Schedule(tuple(slots[i % len(slots)] for i in range(plan.warmup_calls)))
    exchange.run_oracle(repeated)
    exchange.run_candidate(repeated, extra_s=60)
    exchange.drop(keep_memory=True)
    timed = Schedule(exchange.deliver(spec, calls, keep=True), aligned=True, digests=True)
    both = exchange.run_oracle(timed), exchange.run_candidate(timed, extra_s=60)
    host_us = [statistics.median(report.host_us) for reports in both for report in reports.values()]
    exchange.drop(keep_memory=True)
    return cover_for(max(host_us))


def cover_for(host_us: float) -> float:
    """How long the device must be kept busy so that a host that takes so long over a call has queued it."""
    return min(MAX_COVER_US, 1.5 * host_us + 50.0)


def _timed(run: Callable[[], Reports], side: Side, calls: int, *, judged: bool) -> Reports:
    start = time.perf_counter_ns()
    reports = run()
    wall_us = (time.perf_counter_ns() - start) / 1e3
    stamps = {rank: _stamps(rank, report, judged=judged) for rank, report in reports.items()}
    times, settled = [], []
    for call in range(calls):
        marks = [stamps[rank][call] for rank in stamps]
        times.append((max(end for _, end, _ in marks) - min(begin for begin, _, _ in marks)) / 1e3)
        settled.append(max(quiet - end for _, end, quiet in marks) / 1e3)
    # Without a common zero times are too long, and whoever reports that loses by it.
    if sum(times) > wall_us * 1.05 and common_zero(reports):
        raise Decided(
            Verdict.REJECTED if judged else Verdict.HARNESS_ERROR,
            Stage.TIMING,
            f"the {'candidate' if judged else 'reference'}'s ranks report more time than has passed",
            {"failure": Failure("clock", f"{sum(times):.0f} us in calls within {wall_us:.0f} us")},
        )
    side.calls_us.append(times)
    side.settled_us.append(settled)
    side.host_us.append([max(report.host_us[call] for report in reports.values()) for call in range(calls)])
    return reports


def common_zero(reports: Reports) -> bool:
    """Whether the ranks say that their stamps count from the same moment; otherwise they are too late."""
    return all(report.common_zero for report in reports.values())


def _stamps(rank: int, report: BatchReport, *, judged: bool) -> tuple[Stamps, ...]:
    """The claimed start, end and settling of each call: in order, or the report is refused."""
    if not all(start < end <= settled for start, end, settled in report.calls):
        raise Decided(
            Verdict.REJECTED if judged else Verdict.HARNESS_ERROR,
            Stage.TIMING,
            f"rank {rank} of the {'candidate' if judged else 'reference'} reported impossible times",
            {
                "failing_ranks": (rank,) if judged else (),
                "failure": Failure("clock", "times out of order", rank),
            },
        )
    return report.calls


def _verify(exchange: Exchange, slots: tuple[int, ...], reports: Reports, share: float, source: random.Random) -> None:
    """Compare a share of the timed outputs, chosen now, and hold the ranks to the fingerprints they gave for all of them."""
    chosen = _chosen(slots, share, source)
    exchange.release()
    outcome = exchange.check(chosen, words="timed calls")
    if outcome.rejected or outcome.mismatch:
        raise _wrong_when_timed(outcome)
    for (slot, rank), digest in outcome.digests.items():
        if reports[rank].digests[slots.index(slot)] != digest:
            raise Decided(
                Verdict.REJECTED,
                Stage.TIMING,
                f"rank {rank} changed an output after its call was over",
                {"failing_ranks": (rank,), "failure": Failure("late_output", "fingerprint differs", rank)},
            )


def _verify_queued(exchange: Exchange, slots: tuple[int, ...], share: float, source: random.Random) -> None:
    """A share of the queued calls, chosen now: what confirms a time must have done the work too."""
    chosen = _chosen(slots, share, source)
    exchange.release()
    outcome = exchange.check(chosen, words="queued calls")
    if outcome.rejected or outcome.mismatch:
        raise _wrong_when_timed(outcome)


def _chosen(slots: tuple[int, ...], share: float, source: random.Random) -> list[int]:
    return source.sample(slots, max(1, math.ceil(share * len(slots))))


def _wrong_when_timed(outcome: Outcome) -> Decided:
    what = outcome.rejected or (outcome.mismatch.pattern if outcome.mismatch else "")
    return Decided(
        Verdict.REJECTED,
        Stage.TIMING,
        f"right when checked, wrong when timed: {what or 'values differ'}",
        {
            "mismatch": outcome.mismatch,
            "failure": Failure("timed_output", "a timed call returned a wrong result"),
            "failing_ranks": outcome.mismatch.ranks if outcome.mismatch else (),
        },
    )


def _conclude(
    reference: Side,
    candidate: Side,
    clock: ClockCheck,
    empty_us: list[float],
    calls: int,
    floor_us: float | None,
    note: str,
    first_call_us: float | None,
) -> Timing:
    ratio = speedup(reference.calls_us, candidate.calls_us)
    timing = Timing(
        reference_us=median(reference.calls_us),
        candidate_us=median(candidate.calls_us),
        speedup=ratio.value,
        speedup_low=ratio.low,
        speedup_high=ratio.high,
        decision="unproven" if ratio.decision == "faster" and not clock.confirms else ratio.decision,
        calls=calls * len(reference.calls_us),
        rounds=len(reference.calls_us),
        reference_p10_us=quantile(reference.calls_us, 0.1),
        reference_p90_us=quantile(reference.calls_us, 0.9),
        candidate_p10_us=quantile(candidate.calls_us, 0.1),
        candidate_p90_us=quantile(candidate.calls_us, 0.9),
        floor_us=floor_us,
        reference_wall_us=clock.reference_us,
        candidate_wall_us=clock.candidate_us,
        clock_agreement=clock.words,
        first_call_us=first_call_us,
        reference_samples_us=tuple(map(tuple, reference.calls_us)),
        candidate_samples_us=tuple(map(tuple, candidate.calls_us)),
        reference_walls_us=tuple(reference.wall_us),
        candidate_walls_us=tuple(candidate.wall_us),
        empty_walls_us=tuple(empty_us),
        note=note,
    )
    if clock.contradicts:
        raise Decided(
            Verdict.REJECTED,
            Stage.TIMING,
            f"the reported times do not account for the time that passed: {clock.words}",
            {"timing": timing, "failure": Failure("clock", clock.words)},
        )
    late, usual = median(candidate.settled_us), median(reference.settled_us)
    if late > usual + max(20.0, 0.25 * timing.candidate_us) and late > 3 * usual:
        text = f"the device went on working for {late:.0f} us after the end of a call ({usual:.0f} us is usual)"
        raise Decided(
            Verdict.REJECTED,
            Stage.TIMING,
            f"work outside the timed stream: {text}",
            {"timing": timing, "failure": Failure("hidden_work", text)},
        )
    if floor_us is not None and timing.candidate_us < floor_us:
        text = f"{timing.candidate_us:.2f} us is below the physical floor of {floor_us:.2f} us"
        raise Decided(Verdict.REJECTED, Stage.TIMING, text, {"timing": timing, "failure": Failure("floor", text)})
    return timing
