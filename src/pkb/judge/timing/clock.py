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


@dataclass
class WallTimes:
    """Microseconds per call, by batch of calls queued back to back: from the release of their arguments to the digests of all
    outputs."""

    reference_us: list[float] = field(default_factory=list)
    candidate_us: list[float] = field(default_factory=list)
    empty_us: list[float] = field(default_factory=list)
    """The same without the calls, as the oracle does it: a candidate could take its time over nothing."""

    def take(self, work: Workload) -> None:
        """A batch of fresh calls on each side."""
        work.undisturbed(partial(self._take, work))

    def _take(self, work: Workload) -> None:
        exchange = work.exchange
        slots = work.deliver()
        queued = Schedule(slots, digests=True)

        def batch(crew: Crew, run: Callable[..., Reports], schedule: Schedule) -> tuple[Reports, float]:
            exchange.wake(crew)
            return on_wall_clock(partial(run, schedule, extra_s=work.extra_s))

        def reference() -> tuple[Reports, float]:
            measured = batch(exchange.oracle, work.run_reference, queued)
            # Right behind it: the same arguments, outputs of the same sizes, and the same state of the machine.
            empty_us.append(batch(exchange.oracle, work.run_reference, replace(queued, empty=True))[1])
            return measured

        empty_us: list[float] = []
        taken = work.one_after_the_other(reference, partial(batch, exchange.candidate, exchange.run_candidate, queued))
        verify_queued(work, slots, taken.candidate[0])
        self.reference_us.append(taken.reference[1] / work.calls)
        self.candidate_us.append(taken.candidate[1] / work.calls)
        self.empty_us.append(empty_us[0] / work.calls)
        work.drop()


def on_wall_clock(run: Callable[[], Reports]) -> tuple[Reports, float]:
    """What it returns, and how many microseconds passed meanwhile."""
    start = time.perf_counter_ns()
    reports = run()
    return reports, (time.perf_counter_ns() - start) / 1e3
