"""What the two sides of a measurement share: the calls that they run, and which side runs first."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from pkb.judge.crew.company import Disturbed
from pkb.judge.decision import Decided
from pkb.judge.exchange import Exchange, Reports
from pkb.judge.kinds import KindPlan
from pkb.types.protocol.commands import DrawSpec, Schedule
from pkb.types.stock import Against
from pkb.types.verdict import Evidence, Failure, FailureKind, Stage, Verdict

T = TypeVar("T")
ATTEMPTS = 3


class Sides(NamedTuple, Generic[T]):
    reference: T
    candidate: T


@dataclass
class Workload:
    """Batches of calls, each on arguments that neither side has seen before."""

    exchange: Exchange
    spec: DrawSpec
    calls: int
    """In a batch."""
    verify_share: float
    source: random.Random = field(default_factory=random.SystemRandom)
    """Orders the kinds of a batch, and chooses the outputs that are compared, after the calls are over."""
    candidate_first: bool = False
    shares: Mapping[str, float] = field(default_factory=dict)
    """Of the problem's kinds of calls."""
    extra_s: float = 30.0
    """How much longer than the limit of a batch one of the candidate's may take: what the reference needs for it is on top."""
    delivered: list[str] = field(default_factory=list)
    """The kinds of the batch that was delivered or drawn last."""
    against: Against = "reference"
    """Which of the problem's own functions is the side that is called the reference here."""

    def __post_init__(self) -> None:
        self._plan = KindPlan(self.shares)
        self._of_round = self._plan.by_share(self.calls)

    def deliver(self) -> tuple[int, ...]:
        """Every batch of a round has the same kinds of calls, in its own order, so that their total times can be compared."""
        return self.exchange.deliver(self.spec, self.calls, keep=True, kinds=self.next_kinds())

    def next_kinds(self) -> list[str]:
        self.delivered = self.source.sample(self._of_round, self.calls)
        return self.delivered

    def run_reference(self, schedule: Schedule, *, extra_s: float = 0.0) -> Reports:
        return self.exchange.run_oracle(schedule, function=self.against, extra_s=extra_s)

    def drop(self) -> None:
        self.exchange.drop(keep_memory=True)  # at production sizes there is no room for two batches

    def one_after_the_other(self, reference: Callable[[], T], candidate: Callable[[], T]) -> Sides[T]:
        """Runs the reference alone, with the candidate's processes stopped, and the candidate before or after it. Raises
        `Disturbed`. Checking that the reference is alone fills the device; the candidate's turn begins with such a look
        too."""

        def alone() -> T:
            with self.exchange.alone():
                return reference()

        def looked() -> T:
            self.exchange.look()
            return candidate()

        if self.candidate_first:
            return Sides(candidate=looked(), reference=alone())
        return Sides(reference=alone(), candidate=looked())

    def undisturbed(self, take: Callable[[], T]) -> T:
        """The result of `take` if nothing of the candidate ran beside the reference. Otherwise it is repeated on fresh data,
        and given up after several attempts."""
        last = Disturbed()
        for _ in range(ATTEMPTS):
            try:
                return take()
            except Disturbed as disturbed:
                last = disturbed
                self.drop()
        words = f"work beside the reference, in {ATTEMPTS} of {ATTEMPTS} attempts to measure it alone: {last}"
        if last.on_device and not self.exchange.ends_with_the_candidate():
            words += "; it goes on without the candidate, so it is somebody else's"
            raise Decided(Verdict.HARNESS_ERROR, Stage.TIMING, words)
        evidence = Evidence(failure=Failure(FailureKind.HIDDEN_WORK, str(last)))
        raise Decided(Verdict.REJECTED, Stage.TIMING, words, evidence)

    def swap(self) -> None:
        """Begins the next round. ABBA order: drift over a pair of rounds affects both sides equally."""
        self.candidate_first = not self.candidate_first
        self._of_round = self._plan.by_share(self.calls)
