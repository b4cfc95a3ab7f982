"""The host wall clock: the judge's own, around batches of queued calls. It is the check on what ranks report."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from pkb.judge.exchange import Reports
from pkb.judge.timing.sides import Workload
from pkb.judge.timing.verify import verify_queued
from pkb.types.protocol.commands import Schedule

EMPTY_BATCHES = 3
"""In each round: what a batch costs beside its calls must be known better than the calls themselves."""


@dataclass
class WallTimes:
    """Microseconds per call, by batch of calls queued back to back: telling the ranks and hearing from them included."""

    reference_us: list[float] = field(default_factory=list)
    candidate_us: list[float] = field(default_factory=list)
    empty_us: list[float] = field(default_factory=list)
    """Of batches without calls, per call of a full one."""

    def take(self, work: Workload) -> None:
        """A batch of fresh calls on each side."""
        exchange = work.exchange
        slots = work.deliver()
        exchange.wake()
        for _ in range(EMPTY_BATCHES):  # asked of the oracle: a candidate could take its time over nothing
            self.empty_us.append(on_wall_clock(partial(exchange.run_oracle, Schedule(())))[1] / work.calls)

        def queued_us(run: Callable[..., Reports]) -> float:
            exchange.wake()
            return on_wall_clock(partial(run, Schedule(slots), extra_s=work.extra_s))[1] / work.calls

        taken = work.one_after_the_other(
            partial(queued_us, exchange.run_oracle), partial(queued_us, exchange.run_candidate)
        )
        self.reference_us.append(taken.reference)
        self.candidate_us.append(taken.candidate)
        verify_queued(work, slots)
        work.drop()


def on_wall_clock(run: Callable[[], Reports]) -> tuple[Reports, float]:
    """What it returns, and how many microseconds passed meanwhile."""
    start = time.perf_counter_ns()
    reports = run()
    return reports, (time.perf_counter_ns() - start) / 1e3
