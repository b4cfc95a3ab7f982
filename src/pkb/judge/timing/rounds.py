"""A round: one batch of the reference and one of the candidate, timed by their ranks.

Ranks meet on the device before each call. A rank's time of a call is its own end minus its own start, and the call's time is
the largest of all ranks: no two devices' clocks are ever compared.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from pkb.judge.decision import Decided
from pkb.judge.exchange import Reports
from pkb.judge.stages.correctness import communication
from pkb.judge.timing.clock import on_wall_clock
from pkb.judge.timing.sides import Sides, Workload
from pkb.judge.timing.verify import verify_timed
from pkb.types.protocol.commands import Schedule
from pkb.types.protocol.replies import Stamps
from pkb.types.verdict import Communication, Evidence, Failure, FailureKind, Stage, Verdict

MAX_COVER_US = 5_000.0
WARM_UP_S = 10.0
"""What a side's plain calls before the first round may take; a batch that has begun is finished."""


class CallTimes(NamedTuple):
    """Times of one side in one round, in microseconds by call."""

    calls_us: list[float]
    settled_us: list[float]
    """How long the device went on working after the end of the call."""
    host_us: list[float]


class Round(NamedTuple):
    times: Sides[CallTimes]
    kinds: list[str]
    """Of the calls."""
    drift_ppm: list[float]
    """By how much the clock of each rank but the first runs ahead of the first one's, as the reference's ranks see it."""
    communication: Communication
    """Of the candidate."""


def take_round(work: Workload, cover_us: float) -> Round:
    return work.undisturbed(partial(_take_round, work, cover_us))


def _take_round(work: Workload, cover_us: float) -> Round:
    slots = work.deliver()
    kinds = work.delivered
    schedule = Schedule(slots, aligned=True, digests=True, cover_us=cover_us)
    timed = work.one_after_the_other(
        partial(timed_batch, partial(work.run_reference, schedule, extra_s=30), judged=False),
        partial(timed_batch, partial(work.exchange.run_candidate, schedule, extra_s=work.extra_s), judged=True),
    )
    (reference, reference_times), (candidate, candidate_times) = timed
    # Only when both sides are through: a truth takes the memory that the reference has grown used to. The candidate's
    # digests came with its times, so that it gains nothing by the wait.
    verify_timed(work, slots, candidate)
    work.drop()
    return Round(Sides(reference_times, candidate_times), kinds, drift_ppm(reference), communication(candidate))


def timed_batch(run: Callable[[], Reports], *, judged: bool) -> tuple[Reports, CallTimes]:
    """Runs a batch and reads its times; impossible times are refused. `judged`: it is the candidate's."""
    reports, wall_us = on_wall_clock(run)
    for rank, report in reports.items():
        _require_order(rank, report.calls, judged=judged)
    times = call_times(reports)
    if sum(times.calls_us) > wall_us * 1.05:
        raise Decided(
            Verdict.REJECTED if judged else Verdict.HARNESS_ERROR,
            Stage.TIMING,
            f"the {'candidate' if judged else 'reference'}'s ranks report more time than has passed",
            Evidence(
                failure=Failure(FailureKind.CLOCK, f"{sum(times.calls_us):.0f} us in calls within {wall_us:.0f} us")
            ),
        )
    return reports, times


def call_times(reports: Reports) -> CallTimes:
    by_call = list(zip(*(report.calls for report in reports.values()), strict=True))
    return CallTimes(
        [max(end - start for start, end, _ in call) / 1e3 for call in by_call],
        [max(settled - end for _, end, settled in call) / 1e3 for call in by_call],
        [max(host_us) for host_us in zip(*(report.host_us for report in reports.values()), strict=True)],
    )


def drift_ppm(reports: Reports) -> list[float]:
    """Clock drift: the slope of start_r - start_0 over the calls of a batch, since all ranks start a call together."""
    first, *others = ([start for start, _, _ in report.calls] for report in reports.values())
    if len(first) < 2:
        return []
    return [
        1e6 * statistics.linear_regression(first, [b - a for a, b in zip(first, starts, strict=True)]).slope
        for starts in others
    ]


def _require_order(rank: int, calls: tuple[Stamps, ...], *, judged: bool) -> None:
    """The claimed start, end and settling of each call: in order, or the report is refused."""
    if not all(start < end <= settled for start, end, settled in calls):
        raise Decided(
            Verdict.REJECTED if judged else Verdict.HARNESS_ERROR,
            Stage.TIMING,
            f"rank {rank} of the {'candidate' if judged else 'reference'} reported impossible times",
            Evidence(
                failing_ranks=(rank,) if judged else (),
                failure=Failure(FailureKind.CLOCK, "times out of order", rank),
            ),
        )


def warm_up(work: Workload, warmup_calls: int) -> float:
    """Plain calls that warm clocks and caches of both sides, then one round like the timed ones, after which the allocator has
    the memory that a round needs. Returns how long the device must be kept busy to hide launches."""
    exchange, slots = work.exchange, work.deliver()
    started = time.monotonic()
    _repeat(work.run_reference, slots, warmup_calls)
    work.extra_s = 30.0 + time.monotonic() - started  # no less than what a batch of as many calls takes it
    _repeat(partial(exchange.run_candidate, extra_s=30.0 + work.extra_s), slots, warmup_calls)
    work.drop()
    timed = Schedule(work.deliver(), aligned=True, digests=True)
    reference, theirs_us = on_wall_clock(partial(work.run_reference, timed))
    work.extra_s = 30.0 + theirs_us / 1e6
    both = Sides(reference, exchange.run_candidate(timed, extra_s=30.0 + work.extra_s))
    host_us = [statistics.median(report.host_us) for reports in both for report in reports.values()]
    work.drop()
    return cover_for(max(host_us))


def _repeat(run: Callable[[Schedule], Reports], slots: tuple[int, ...], calls: int) -> None:
    """Batch by batch, so that a limit is never one for hundreds of calls; until enough were made or they have taken enough."""
    give_up = time.monotonic() + WARM_UP_S
    while calls > 0 and time.monotonic() < give_up:
        run(Schedule(slots[:calls]))
        calls -= len(slots)


def cover_for(host_us: float) -> float:
    """Launch-latency hiding: how long a device must be kept busy so that the host, which needs `host_us` for a call, has
    queued it by then."""
    return min(MAX_COVER_US, 1.5 * host_us + 50.0)
