"""How many calls an evaluation can afford: what they hold must fit into memory, and what they move must not take an hour.

A plan's numbers are for sizes whose arguments take moments to draw and hand over. At production sizes one call of eight ranks
is gigabytes, so each stage gets a budget of bytes and makes as many calls of the plan's as that buys. The verdict's checks
say how many were made.

docs/platforms.md has what an evaluation holds at least. It is why the oracle lets go of a batch's arguments before it finds a
truth, finds one at a time where they are large (`Exchange.check`), and why the stamped and the queued batch of a timing round
follow each other.
"""

from dataclasses import dataclass
from typing import NamedTuple

from pkb.judge.exchange import CallBytes
from pkb.judge.stages.races import SCENARIOS
from pkb.types.plan import Plan

MEMORY_SHARE = 0.25
"""Of the platform's memory that arguments and outputs of calls that are held together may take."""
STAGE_BYTES = 16e9
"""What one stage may hand from side to side, all ranks together: some seconds of copying through the host."""
TIMING_BYTES = 40e9
"""The same for the fewest calls in all rounds of timing: with few rounds, one that was disturbed decides."""
RACES_TRUTH_S = 120.0
"""What finding the truths of all calls of the race stage may take."""
LEAST_CALLS = 2
"""Data must rotate."""
LEAST_ROUNDS = 4


def affordable_trials(trials: int, *, argument_bytes: int, output_bytes: int) -> int:
    """How many of the plan's correctness calls a stage can move; known after the first of them."""
    return min(trials, max(LEAST_CALLS, int(STAGE_BYTES / max(1, argument_bytes + output_bytes))))


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
        """A call's arguments, outputs and ground truth (unless it is large) are held until all calls of a scenario are over."""
        moved = self.argument_bytes + self.call_bytes.outputs
        held = moved + self.call_bytes.truth
        affordable = int(STAGE_BYTES / max(1, moved * len(SCENARIOS)))
        affordable = min(affordable, int(RACES_TRUTH_S / max(1e-6, self.call_bytes.truth_s * len(SCENARIOS))))
        calls = max(LEAST_CALLS, min(self._fitting(held, self.plan.race_calls), affordable))
        return RacePace(calls, max(1, min(self.plan.race_repeats, affordable // calls)))

    def timing(self) -> TimingPace:
        """Both sides hold arguments and outputs of one batch, stamped or queued; most of what is moved are arguments."""
        fitting = self._fitting(2 * (self.argument_bytes + self.call_bytes.outputs), self.plan.calls_per_round)
        batches = int(TIMING_BYTES / max(1, self.argument_bytes * LEAST_CALLS))
        rounds = max(min(LEAST_ROUNDS, self.plan.timing_rounds), min(self.plan.timing_rounds, batches // 2 - 1))
        affordable = int(STAGE_BYTES / max(1, self.argument_bytes * 2 * (rounds + 1)))
        return TimingPace(max(LEAST_CALLS, min(fitting, affordable)), rounds)

    def _fitting(self, bytes_per_call: int, wanted: int) -> int:
        return max(LEAST_CALLS, min(wanted, int(MEMORY_SHARE * self.memory_bytes / max(1, bytes_per_call))))
