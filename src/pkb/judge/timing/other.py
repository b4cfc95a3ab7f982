"""The second comparison: the candidate against the other one of reference and baseline.

The candidate is timed against one of the two functions, in rounds and on the host wall clock, and that decides. The ratio of
the two functions does not depend on the candidate. So a few rounds pair these two alone, and the ratios are multiplied:
reference/candidate = reference/baseline x baseline/candidate.
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from pkb.judge.exchange import Exchange
from pkb.judge.timing.rounds import CallTimes, call_times, cover_for, timed_batch
from pkb.judge.timing.sides import Workload
from pkb.judge.timing.statistics import NEAR, Paired, Ratio, estimate
from pkb.types.protocol.commands import DrawSpec, Schedule
from pkb.types.stock import Against
from pkb.types.timing import Decision, OtherReading, Timing

ROUNDS, MOST_CALLS = 4, 10
"""Rounds, and calls in each: the two differ by a lot, or their difference does not matter."""
LEAST_ROUNDS, LEAST_CALLS = 2, 2
MOST_S = 20.0
"""What more than the least may take: some references are forty times slower than their baselines."""


def with_other_reading(
    exchange: Exchange,
    spec: DrawSpec,
    timing: Timing,
    *,
    calls: int,
    on_gpu: bool,
    progress: Callable[[str], None],
    shares: Mapping[str, float] | None = None,
) -> Timing:
    other: Against = "reference" if timing.against == "baseline" else "baseline"
    progress(f"timing: the {other}, warm-up calls")
    warm = _warm_up(exchange, spec, other)
    affordable = int(1e6 * MOST_S / (ROUNDS * max(1.0, warm.calls_us[-1])))
    calls = max(LEAST_CALLS, min(calls, MOST_CALLS, affordable))
    work = Workload(exchange, spec, calls, 0.0, shares=shares or {}, against=timing.against)
    cover_us = cover_for(statistics.median(warm.host_us)) if on_gpu else 0.0  # a CPU has no queue to fill
    started = time.monotonic()
    others: list[list[float]] = []
    timed: list[list[float]] = []
    kinds: list[list[str]] = []
    while len(others) < ROUNDS and (len(others) < LEAST_ROUNDS or time.monotonic() < started + MOST_S):
        progress(f"timing: the {other}, round {len(others) + 1} of {ROUNDS}")
        times = work.undisturbed(partial(_round, work, other, cover_us))
        others.append(times[other])
        timed.append(times[timing.against])
        kinds.append(work.delivered)
        work.swap()
    samples = Paired(others, timed, kinds, work.shares or {"": 1.0})
    apart = estimate(samples).rounds  # what another start may add is in the other factor
    speedup = product(apart, Ratio(timing.speedup, timing.speedup_low, timing.speedup_high))
    reading = OtherReading(
        against=other,
        us=samples.typical_us()[0],
        speedup=speedup.value,
        speedup_low=speedup.low,
        speedup_high=speedup.high,
        decision=decision(speedup, apart, timing.decision, timing.window_speedup_low),
        calls=sum(map(len, others)),
        rounds=len(others),
        samples_us=tuple(map(tuple, others)),
        paired_samples_us=tuple(map(tuple, timed)),
        sample_kinds=tuple(map(tuple, kinds)) if work.shares else (),
    )
    return replace(timing, other=reading)


def decision(speedup: Ratio, apart: Ratio, main: Decision, window_low: float | None) -> Decision:
    """A gain must also show on the host wall clock, on which the candidate was only measured against the main function."""
    seen = math.inf if window_low is None else window_low * apart.low
    confirmed = main is Decision.FASTER or seen > NEAR
    return speedup.decision if speedup.decision is not Decision.FASTER or confirmed else Decision.UNPROVEN


def product(one: Ratio, other: Ratio) -> Ratio:
    """The product of two independent ratios: in the logarithm, squares of half-widths add up."""
    value = one.value * other.value
    half = math.hypot(*(math.log(ratio.high / ratio.value) for ratio in (one, other)))
    return Ratio(value, value * math.exp(-half), value * math.exp(half))


def _round(work: Workload, other: Against, cover_us: float) -> dict[Against, list[float]]:
    """A batch of each on the same arguments, drawn anew for the second: the first may have changed them. Nothing of the
    candidate's runs meanwhile: it could make the one look slow that it is to be compared with."""
    slots, kinds = work.exchange.new_slots(work.calls), work.next_kinds()
    times: dict[Against, list[float]] = {}
    order: tuple[Against, ...] = (work.against, other)
    with work.exchange.alone():
        for function in reversed(order) if work.candidate_first else order:
            work.exchange.draw(work.spec, slots, kinds)
            schedule = Schedule(slots, aligned=True, cover_us=cover_us)
            run = partial(work.exchange.run_oracle, schedule, function=function, extra_s=30.0)
            times[function] = timed_batch(run, judged=False)[1].calls_us
            work.exchange.drop_drawn()
    return times


def _warm_up(exchange: Exchange, spec: DrawSpec, other: Against) -> CallTimes:
    """Untimed calls: the other has not run before."""
    slots = exchange.new_slots(LEAST_CALLS)
    exchange.draw(spec, slots, [spec.kind] * LEAST_CALLS)
    reports = exchange.run_oracle(Schedule(slots, aligned=True), function=other, extra_s=30.0)
    exchange.drop_drawn()
    return call_times(reports)
