"""How many calls an evaluation can afford: what they hold must fit into memory, and what they move must not take an hour.

A plan's numbers are for sizes whose arguments take moments to draw and hand over. At production sizes one call of eight ranks
is gigabytes, so each stage gets a budget of bytes and makes as many calls of the plan's as that buys. The verdict's checks
say how many were made.
"""

from dataclasses import dataclass
from typing import NamedTuple

from pkb.judge.cases import CallBytes
from pkb.judge.races import SCENARIOS
from pkb.types.plan import Plan

MEMORY_SHARE = 0.25
"""Of the platform's memory that arguments and outputs of calls that are held together may take."""
STAGE_BYTES = 60e9
"""What one stage may hand from side to side, all ranks together: tens of seconds of copying through the host."""
LEAST_CALLS = 2
"""Data must rotate."""
LEAST_ROUNDS = 4


class RacePace(NamedTuple):
    calls: int
    repeats: int


class TimingPace(NamedTuple):
    calls: int
    rounds: int


@dataclass(frozen=True)
class Pace:
    plan: Plan
    memory_bytes: int
    argument_bytes: int
    """Of one call, all ranks together."""
    call_bytes: CallBytes

    def races(self) -> RacePace:
        """A call's arguments, outputs and truth are held until all calls of a scenario are over."""
        moved = self.argument_bytes + self.call_bytes.outputs
        held = moved + self.call_bytes.truth
        affordable = int(STAGE_BYTES / max(1, moved * len(SCENARIOS)))
        calls = max(LEAST_CALLS, min(self._fitting(held, self.plan.race_calls), affordable))
        return RacePace(calls, max(1, min(self.plan.race_repeats, affordable // calls)))

    def timing(self) -> TimingPace:
        """Both sides hold arguments and outputs of a stamped and of a queued batch; what moves is mostly arguments."""
        fitting = self._fitting(4 * (self.argument_bytes + self.call_bytes.outputs), self.plan.calls_per_round)
        batches = int(STAGE_BYTES / max(1, self.argument_bytes * LEAST_CALLS))
        rounds = max(min(LEAST_ROUNDS, self.plan.timing_rounds), min(self.plan.timing_rounds, batches // 2 - 1))
        affordable = int(STAGE_BYTES / max(1, self.argument_bytes * 2 * (rounds + 1)))
        return TimingPace(max(LEAST_CALLS, min(fitting, affordable)), rounds)

    def _fitting(self, bytes_per_call: int, wanted: int) -> int:
        return max(LEAST_CALLS, min(wanted, int(MEMORY_SHARE * self.memory_bytes / max(1, bytes_per_call))))
