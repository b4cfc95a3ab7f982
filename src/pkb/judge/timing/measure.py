"""Stage 5: the problem's baseline, or its reference, and the candidate in alternating rounds, every call on fresh data.

The ranks report times; the judge holds its own clock against them, verifies a share of the timed outputs chosen after the
fact, and rejects what physics does not allow. Rounds are made until the samples settle the question, or time is up; and where
only another start of the ranks could tell, in several of them.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from pkb.judge.exchange import Exchange
from pkb.judge.timing.clock import REPEATS, WallTimes
from pkb.judge.timing.conclude import Measured, conclude, hold_against_wall_clock, paired
from pkb.judge.timing.looks import LAST_LOOK, looks, settled
from pkb.judge.timing.rounds import Round, take_round, warm_up
from pkb.judge.timing.sides import Workload
from pkb.judge.timing.starts import Starts, over_starts
from pkb.judge.timing.statistics import ERROR, ClockCheck, Estimate, estimate
from pkb.types.plan import MORE_S, Plan
from pkb.types.protocol.commands import DrawSpec
from pkb.types.stock import Against
from pkb.types.timing import Decision
from pkb.types.verdict import Communication, Timing

CPU_MORE_S = 10.0
"""What rounds beyond the planned ones may take at most where nothing is called faster, however sure one is."""

ONE_START = "measured in one start, and starts of the same code may differ by more"


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
    shares: Mapping[str, float] | None = None,
    against: Against = "reference",
    mutates: bool = False,
    starts: Starts | None = None,
    more_s: float = MORE_S,
) -> tuple[Timing, Communication]:
    """Returns the times, and what moved the data while they were taken. `shares`: weights of the problem's kinds of calls.
    `mutates`: calls change their arguments and cannot be repeated. `starts`: None if there is only one start.
    `more_s`: what further rounds may take, and likewise further starts."""

    def workload(exchange: Exchange) -> Workload:
        return Workload(exchange, spec, calls, plan.verify_share, shares=shares or {}, against=against)

    more_s = 0.0 if spec.as_published else more_s if on_gpu else min(more_s, CPU_MORE_S)
    stage = _Rounds(workload(exchange), rounds, plan.warmup_calls, on_gpu, progress, more_s)
    stage.walls.repeats = 1 if mutates else REPEATS
    stage.warm_up()
    found, clock = stage.until_settled()
    reference_us = paired(stage.taken, stage.work.shares).typical_us()[0]
    hurried = False
    if starts is not None and not clock.contradicts and starts.more(found, reference_us):
        if starts.are_allowed:
            found, clock = stage.in_more_starts(found, starts, workload)
        else:
            hurried, note = True, "; ".join(filter(None, [note, ONE_START]))
    timing = conclude(
        stage.measured, found, clock, floor_us=floor_us, note=note,
        first_call_us=first_call_us,
    )  # fmt: skip
    if hurried and timing.decision is Decision.FASTER:
        timing = replace(timing, decision=Decision.UNPROVEN)
    library = any(one.communication is Communication.LIBRARY for one in stage.taken)
    return timing, Communication.LIBRARY if library else stage.taken[-1].communication


@dataclass
class _Rounds:
    work: Workload
    planned: int
    warmup_calls: int
    on_gpu: bool
    progress: Callable[[str], None]
    more_s: float
    cover_us: float = 0.0
    taken: list[Round] = field(default_factory=list)
    walls: WallTimes = field(default_factory=WallTimes)
    again: bool = False
    """The candidate was suspected, and its queued calls measured again."""
    start_rounds: list[int] = field(default_factory=list)
    """How many of `taken` each start has, where there are several."""

    @property
    def measured(self) -> Measured:
        return Measured(self.taken, self.walls, self.work.shares, self.work.against, tuple(self.start_rounds))

    def warm_up(self) -> None:
        self.progress(f"timing: {self.warmup_calls} warm-up calls")
        hiding_us = warm_up(self.work, self.warmup_calls)
        self.cover_us = hiding_us if self.on_gpu else 0.0  # a CPU has no queue to fill

    def until_settled(self) -> tuple[Estimate, ClockCheck]:
        """Returns what the last look shows; each look has its share of the error that all of them together may make."""
        give_up, ahead = math.inf, False
        planned = looks(self.planned, LAST_LOOK if self.on_gpu else 0)
        if self.work.spec.as_published:
            planned = planned[1:]  # neither fewer rounds than planned nor more
        for number, look in enumerate(planned, 1):
            self._take(look.rounds, give_up, stamped=not ahead)
            if give_up == math.inf and len(self.taken) >= self.planned:
                give_up = time.monotonic() + self.more_s
            if over := time.monotonic() >= give_up:
                look = look.as_the_last(planned[number:])
            if not ahead:
                found = estimate(paired(self.taken, self.work.shares), look.error)
            clock = self._held_against_the_clock(look.error)
            beyond_doubt = clock.contradicts and len(self.taken) >= self.planned
            if over or beyond_doubt or settled(found, look, confirmed=clock.confirms):
                break
            ahead = (
                len(self.taken) >= self.planned and found.ratio.low > 1
            )  # and stays so: more looks would be more chances
        return found, clock

    def in_more_starts(
        self, first: Estimate, starts: Starts, workload: Callable[[Exchange], Workload]
    ) -> tuple[Estimate, ClockCheck]:
        """Takes half of the planned rounds in each further start; the difference between starts now decides."""
        found, wanted = [first], starts.asked or 2
        self.start_rounds = [len(self.taken)]
        while len(found) < wanted:
            began = time.monotonic()
            self.progress(f"timing: start {len(found) + 1} of the ranks, since starts of the same code may differ")
            self.work = workload(starts.restart())
            self.warm_up()
            before = len(self.taken)
            self._take(before + max(2, math.ceil(self.planned / 2)), math.inf, stamped=True)
            found.append(estimate(paired(self.taken[before:], self.work.shares)))
            self.start_rounds.append(len(self.taken) - before)
            if len(found) == 2:
                wanted = starts.how_many(time.monotonic() - began)
        return over_starts(found), self._held_against_the_clock(ERROR)

    def _take(self, rounds: int, give_up: float, *, stamped: bool) -> None:
        """Rounds until there are so many, or time is up. Unless `stamped`, the ranks' clocks have said what they can, and only
        the host wall clock is asked again, which takes half the time."""
        made = self.taken if stamped else self.walls.candidate_us
        while len(made) < rounds and time.monotonic() < give_up:
            more = ", to be sure" if len(made) >= self.planned else f" of {self.planned}"
            self.progress(f"timing: round {len(made) + 1}{more}")
            if stamped:
                self.taken.append(take_round(self.work, self.cover_us))
            self.walls.take(self.work)
            self.work.swap()

    def _held_against_the_clock(self, error: float) -> ClockCheck:
        """Measured once more before anybody is accused: the machine may have been busy for some rounds."""
        held = partial(hold_against_wall_clock, self.measured, on_gpu=self.on_gpu, error=error)
        clock = held()
        if clock.too_long and not self.again:
            self.again = True
            for number in range(more := max(self.planned, len(self.taken))):
                self.progress(f"timing: queued calls take too long; re-measured, round {number + 1} of {more}")
                self.walls.take(self.work)
                self.work.swap()
            clock = held()
        return clock
