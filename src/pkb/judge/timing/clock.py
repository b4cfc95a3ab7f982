"""The host wall clock: the judge's own, around batches of queued calls. It is the check on what ranks report."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from pkb.judge.crew.crew import Crew
from pkb.judge.exchange import Reports
from pkb.judge.timing.sides import Workload
from pkb.judge.timing.verify import verify_queued
from pkb.types.protocol.commands import Schedule

REPEATS, MOST_REPEATS = 3, 12
"""Batches of the reference in a round. It has seen nothing of its arguments that it could use, so the same will do, and to
hand over others is what takes long: with production sizes seconds, for batches of milliseconds."""
REPEATS_SHARE = 0.25
"""Of the time that handing over takes, what more than `REPEATS` may."""
LONGEST_US = 100e3
"""A batch that takes longer is not repeated for less than that."""


@dataclass
class WallTimes:
    """Microseconds per call, by batch of calls queued back to back: from the release of their arguments to the digests of all
    outputs."""

    repeats: int = REPEATS
    reference_us: list[float] = field(default_factory=list)
    """So many in each round."""
    candidate_us: list[float] = field(default_factory=list)
    """One in each round: what it is given again it may remember."""
    empty_us: list[float] = field(default_factory=list)
    """As many as of the reference. The same without the calls, as the oracle does it: a candidate could take its time over
    nothing."""

    def take(self, work: Workload) -> None:
        """Measures a batch of fresh calls on each side."""
        work.undisturbed(partial(self._take, work))

    def _take(self, work: Workload) -> None:
        exchange = work.exchange
        began = time.monotonic()
        slots = work.deliver()
        delivered = time.monotonic()
        queued = Schedule(slots, digests=True)

        def batch(crew: Crew, run: Callable[..., Reports], schedule: Schedule) -> tuple[Reports, float]:
            exchange.wake(crew)
            return on_wall_clock(partial(run, schedule, extra_s=work.extra_s))

        def reference() -> tuple[Reports, float]:
            first_began = time.monotonic()
            while True:
                full = batch(exchange.oracle, work.run_reference, queued)
                full_us.append(full[1])
                # Right behind it: the same arguments, outputs of the same sizes, and the same state of the machine. It
                # leaves the arguments as they came.
                empty_us.append(batch(exchange.oracle, work.run_reference, replace(queued, empty=True))[1])
                if not self.candidate_us and self.repeats > 1 == len(full_us):  # in the first round, for all
                    self.repeats = repeats_for(full[1], time.monotonic() - first_began, delivered - began)
                if len(full_us) >= self.repeats:
                    return full

        full_us: list[float] = []
        empty_us: list[float] = []
        taken = work.one_after_the_other(reference, partial(batch, exchange.candidate, exchange.run_candidate, queued))
        verify_queued(work, slots, taken.candidate[0])
        self.reference_us += [us / work.calls for us in full_us[: self.repeats]]
        self.candidate_us.append(taken.candidate[1] / work.calls)
        self.empty_us += [us / work.calls for us in empty_us[: self.repeats]]
        work.drop()


def repeats_for(batch_us: float, both_s: float, delivery_s: float) -> int:
    """How often the reference's batch, which together with an empty one takes `both_s`, is measured on the same arguments."""
    least = 1 if batch_us > LONGEST_US else REPEATS
    return max(least, min(MOST_REPEATS, int(REPEATS_SHARE * delivery_s / both_s)))


def on_wall_clock(run: Callable[[], Reports]) -> tuple[Reports, float]:
    """Calls `run`; returns its result and the microseconds that passed."""
    start = time.perf_counter_ns()
    reports = run()
    return reports, (time.perf_counter_ns() - start) / 1e3
