"""What the judge does inside the host wall clock's interval, and straight before it, is the same for both sides: no side's
interval holds a step, or follows one, that the other's does not. In queued and in stamped batches, whoever is first."""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pkb.judge.crew import company
from pkb.judge.crew.crew import Crew
from pkb.judge.exchange import Exchange, Outcome
from pkb.judge.timing import clock
from pkb.judge.timing.rounds import take_round
from pkb.judge.timing.sides import Workload
from pkb.types.protocol.commands import Command, DrawSpec, LookForCompany, RunBatch, Wake
from pkb.types.protocol.replies import BatchReport, Company

CALLS, RANKS = 2, 3
STAMPS = tuple((1000 * call, 1000 * call + 10, 1000 * call + 10) for call in range(CALLS))


class RecordingCrew:
    ranks = range(RANKS)
    warden_pid = 1

    def __init__(self, role: str, steps: list[str], seen: Company, device: str) -> None:
        self.role, self.steps, self.seen = role, steps, seen
        self.platform = SimpleNamespace(device=device)

    def check_limits(self) -> None:
        self.steps.append(f"limits of {self.role}")

    def tell(self, rank: int, command: Command[Any]) -> None:
        self.steps.append(f"tell {rank} of {self.role}: {type(command).__name__}")

    def hear(self, command: Command[Any], *, timeout_s: float, quiet_s: float = math.inf) -> dict[int, Any]:
        if quiet_s < timeout_s:  # the table of processes is read while it waits
            self.steps.append(f"look for compilers of {self.role}")
        self.steps.append(f"hear {self.role}: {type(command).__name__}")
        if isinstance(command, LookForCompany):
            return dict.fromkeys(self.ranks, self.seen)
        if isinstance(command, RunBatch):
            assert command.schedule.key, "the interval begins with the release of the arguments"
        return {rank: BatchReport(STAMPS, ((),), (1.0,) * CALLS) for rank in self.ranks}

    def ask(self, command: Command[Any], *, timeout_s: float) -> dict[int, Any]:
        for rank in self.ranks:
            self.tell(rank, command)
        return self.hear(command, timeout_s=timeout_s)


class RecordingExchange(Exchange):
    """Delivery and comparing leave one step each; looking, waking and running are the judge's own."""

    def __init__(self, steps: list[str], seen: Company, device: str) -> None:
        oracle, candidate = (cast(Crew, RecordingCrew(role, steps, seen, device)) for role in ("oracle", "candidate"))
        super().__init__(oracle, candidate, limit_s=10.0)
        self.steps = steps

    def deliver(
        self, spec: DrawSpec, count: int, *, keep: bool = False, kinds: Sequence[str] = (), sizes: Sequence[str] = ()
    ) -> tuple[int, ...]:
        self.steps.append("deliver")
        slots = self.new_slots(count)
        self._keys |= dict.fromkeys(slots, "key")
        return slots

    def check(self, slots: Sequence[int], *, words: str) -> Outcome:
        return Outcome()


Take = Callable[[Workload], object]
NOBODY, SOMEBODY = Company(1.0, 0.0), Company(3.0, 0.0)


class Recorded:
    """The steps of one round, and which of them are intervals of the host wall clock."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, take: Take, *, candidate_first: bool = False, device: str = "cuda",
        seen: Company = NOBODY, shared_before: str = "",
    ) -> None:  # fmt: skip
        self.steps: list[str] = []
        ticks = itertools.count(step=1_000_000)

        def read_clock() -> int:
            self.steps.append("clock")
            return next(ticks)

        @contextlib.contextmanager
        def stopped(_: int) -> Iterator[Any]:
            self.steps.append("stop")
            yield SimpleNamespace(restless=(), moved=tuple)
            self.steps.append("go on")

        monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter_ns=read_clock, monotonic=lambda: next(ticks)))
        monkeypatch.setattr(company, "stopped", stopped)
        exchange = RecordingExchange(self.steps, seen, device)
        exchange._watch.shared_before = shared_before
        take(Workload(exchange, DrawSpec("1", "tiny", "bf16"), CALLS, 0.0, candidate_first=candidate_first))
        marks = [at for at, step in enumerate(self.steps) if step == "clock"]
        self.intervals = list(zip(marks[::2], marks[1::2], strict=True))

    def batches(self, steps_before: int) -> list[tuple[str, list[str]]]:
        """Whose, and its interval with so many steps before it."""
        found = [self.steps[begin - steps_before : end + 1] for begin, end in self.intervals]
        return [("candidate" if f"hear candidate: {RunBatch.__name__}" in one else "oracle", one) for one in found]

    def asked(self, role: str, command: type[Command[Any]]) -> int:
        return self.steps.count(f"hear {role}: {command.__name__}")


def queued(work: Workload) -> None:
    clock.WallTimes().take(work)


stamped = partial(take_round, cover_us=0.0)
ROUNDS = pytest.mark.parametrize("take", [queued, stamped], ids=["queued", "stamped"])
ORDERS = pytest.mark.parametrize("candidate_first", [False, True], ids=["reference first", "candidate first"])


def asking(role: str, command: type[Command[Any]]) -> list[str]:
    return [
        *(f"tell {rank} of {role}: {command.__name__}" for rank in range(RANKS)),
        f"hear {role}: {command.__name__}",
    ]


LOOK = asking("oracle", LookForCompany)


def waking(role: str) -> list[str]:
    return ["limits of candidate", "limits of oracle", *asking(role, Wake)]


@ORDERS
def test_every_queued_batch_has_the_same_steps(monkeypatch: pytest.MonkeyPatch, candidate_first: bool) -> None:
    recorded = Recorded(monkeypatch, queued, candidate_first=candidate_first)
    batches = recorded.batches(len(waking("oracle")))
    assert [seat for seat, _ in batches].count("candidate") == 1
    assert len(batches) == 2 * clock.REPEATS + 1
    for seat, batch in batches:
        assert batch == [*waking(seat), "clock", *asking(seat, RunBatch), "clock"]


@ROUNDS
@ORDERS
def test_the_turn_of_each_side_begins_with_a_look(
    monkeypatch: pytest.MonkeyPatch, take: Take, candidate_first: bool
) -> None:
    recorded = Recorded(monkeypatch, take, candidate_first=candidate_first)
    woken = {seat: waking(seat) if take is queued else [] for seat in ("oracle", "candidate")}
    firsts = dict(reversed(recorded.batches(len(LOOK) + len(woken["oracle"]))))
    assert sorted(firsts) == ["candidate", "oracle"]
    for seat, batch in firsts.items():
        assert batch == [*LOOK, *woken[seat], "clock", *asking(seat, RunBatch), "clock"]
    assert recorded.asked("oracle", LookForCompany) == 3, "before either, and after the reference"


@ROUNDS
def test_what_the_candidates_look_shows_is_held_against_nobody(monkeypatch: pytest.MonkeyPatch, take: Take) -> None:
    def candidate_alone(work: Workload) -> None:
        monkeypatch.setattr(work.exchange, "alone", contextlib.nullcontext)
        take(work)

    recorded = Recorded(monkeypatch, candidate_alone, seen=SOMEBODY)
    assert recorded.asked("oracle", LookForCompany) == 1, "nor is it taken again"


@ROUNDS
@pytest.mark.parametrize("elsewhere", [{"device": "cpu"}, {"shared_before": "rank 0 sees somebody"}], ids=str)
def test_where_the_reference_has_no_look_the_candidate_has_none(
    monkeypatch: pytest.MonkeyPatch, take: Take, elsewhere: dict[str, str]
) -> None:
    assert not Recorded(monkeypatch, take, **cast(Any, elsewhere)).asked("oracle", LookForCompany)
