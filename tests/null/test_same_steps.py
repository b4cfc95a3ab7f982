"""What the judge does inside the host wall clock's interval, and directly before it, is the same for every batch: no side's
interval holds a step, or follows one, that the other's does not."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pkb.judge.crew.crew import Crew
from pkb.judge.exchange import Exchange, Outcome
from pkb.judge.timing import clock
from pkb.judge.timing.sides import Workload
from pkb.types.protocol.commands import Command, DrawSpec, RunBatch
from pkb.types.protocol.replies import BatchReport

CALLS, RANKS = 2, 3


class RecordingCrew:
    ranks = range(RANKS)

    def __init__(self, role: str, steps: list[str]) -> None:
        self.role, self.steps = role, steps

    def check_limits(self) -> None:
        self.steps.append(f"limits of {self.role}")

    def tell(self, rank: int, command: Command[Any]) -> None:
        self.steps.append(f"tell {rank} of {self.role}: {type(command).__name__}")

    def hear(self, command: Command[Any], *, timeout_s: float) -> dict[int, Any]:
        self.steps.append(f"hear {self.role}: {type(command).__name__}")
        if isinstance(command, RunBatch):
            assert command.schedule.key, "the interval begins with the release of the arguments"
        return {rank: BatchReport((), ((),), ()) for rank in self.ranks}

    def ask(self, command: Command[Any], *, timeout_s: float) -> dict[int, Any]:
        for rank in self.ranks:
            self.tell(rank, command)
        return self.hear(command, timeout_s=timeout_s)


class RecordingExchange(Exchange):
    """Delivery, stopping and comparing leave one step each; waking and running are the judge's own."""

    def __init__(self, steps: list[str]) -> None:
        oracle, candidate = (cast(Crew, RecordingCrew(role, steps)) for role in ("oracle", "candidate"))
        super().__init__(oracle, candidate, limit_s=10.0)
        self.steps = steps

    def deliver(self, spec: DrawSpec, count: int, *, keep: bool = False, kinds: Sequence[str] = ()) -> tuple[int, ...]:
        self.steps.append("deliver")
        slots = self.new_slots(count)
        self._keys |= dict.fromkeys(slots, "key")
        return slots

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        self.steps.append("stop, and look for company")
        yield
        self.steps.append("look for company, and go on")

    def check(self, slots: Sequence[int], *, words: str) -> Outcome:
        return Outcome()


@pytest.mark.parametrize("candidate_first", [False, True])
def test_both_sides_take_the_same_steps(monkeypatch: pytest.MonkeyPatch, candidate_first: bool) -> None:
    steps: list[str] = []
    ticks = itertools.count()

    def read_clock() -> int:
        steps.append("clock")
        return next(ticks)

    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter_ns=read_clock, monotonic=lambda: next(ticks)))
    walls = clock.WallTimes()
    walls.take(
        Workload(RecordingExchange(steps), DrawSpec("1", "tiny", "bf16"), CALLS, 0.0, candidate_first=candidate_first)
    )

    marks = [at for at, step in enumerate(steps) if step == "clock"]
    intervals = list(zip(marks[::2], marks[1::2], strict=True))
    assert len(intervals) == len(walls.reference_us) + len(walls.empty_us) + len(walls.candidate_us) == 7
    before = 2 + RANKS + 1  # the limits of both sides, waking
    batches = [steps[begin - before : end + 1] for begin, end in intervals]
    seats = ["candidate" if f"hear candidate: {RunBatch.__name__}" in batch else "oracle" for batch in batches]
    assert seats.count("candidate") == 1
    for seat, batch in zip(seats, batches, strict=True):
        assert batch == [
            "limits of candidate",
            "limits of oracle",
            *(f"tell {rank} of {seat}: Wake" for rank in range(RANKS)),
            f"hear {seat}: Wake",
            "clock",
            *(f"tell {rank} of {seat}: RunBatch" for rank in range(RANKS)),
            f"hear {seat}: RunBatch",
            "clock",
        ]
