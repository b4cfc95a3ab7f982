"""What is measured once more: rounds in which something ran beside the reference, and suspect candidates, which are rejected
only if that does not clear them."""

import contextlib
import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from pkb.judge.crew.company import DeviceAtWork, Disturbed
from pkb.judge.decision import Decided
from pkb.judge.exchange import Exchange, Outcome, Reports
from pkb.judge.timing import clock
from pkb.judge.timing.measure import measure
from pkb.types.plan import plan
from pkb.types.protocol.commands import DrawSpec, Schedule
from pkb.types.protocol.replies import BatchReport
from pkb.types.verdict import Timing, Verdict

ROUNDS, CALLS = 8, 2
REFERENCE_US, CANDIDATE_US, EMPTY_US = 5000.0, 1000.0, 3000.0


class Sides:
    """One rank on each side, on a clock of its own: what calls take is known."""

    kind: type[Disturbed] = Disturbed
    ends = True

    def __init__(self, disturbances_us: Iterator[float], company: Iterator[bool]) -> None:
        self.now_us, self.slots, self.disturbances_us = 0.0, itertools.count(), disturbances_us
        self.queued, self.company = 0, company
        self.order = ""  # R and C as they were timed
        self.oracle = self.candidate = None

    def deliver(self, spec: DrawSpec, count: int, *, keep: bool = False) -> tuple[int, ...]:
        return tuple(itertools.islice(self.slots, count))

    def run_oracle(self, schedule: Schedule, *, extra_s: float = 0.0) -> Reports:
        return {0: self._run(schedule, 0.0 if schedule.empty else REFERENCE_US)}

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        self.now_us += 1e6  # however long it takes to be alone, it is not in what is measured
        yield
        if next(self.company):
            raise self.kind("somebody is there")

    def ends_with_the_candidate(self) -> bool:
        return self.ends

    def run_candidate(self, schedule: Schedule, *, extra_s: float = 0.0) -> Reports:
        if len(schedule.slots) == CALLS and not schedule.aligned:
            self.queued += 1
            self.now_us += next(self.disturbances_us)
        return {0: self._run(schedule, CANDIDATE_US)}

    def _run(self, schedule: Schedule, us: float) -> BatchReport:
        calls = len(schedule.slots)
        self.now_us += EMPTY_US + us * calls
        self.order += ("C" if us == CANDIDATE_US else "R") if schedule.cover_us else ""
        marks = [(1000 * n, int(1000 * (n + us)), int(1000 * (n + us))) for n in range(calls)]
        return BatchReport(tuple(marks), ((),) * calls, (5.0,) * calls)

    def check(self, slots: tuple[int, ...], *, words: str) -> Outcome:
        return Outcome()

    def wake(self, crew: None) -> None: ...
    def release(self) -> None: ...
    def drop(self, *, keep_memory: bool = False) -> None: ...


def timed(
    monkeypatch: pytest.MonkeyPatch, disturbances_us: Iterator[float], company: Iterator[bool] | None = None
) -> tuple[Timing, Sides]:
    sides = Sides(disturbances_us, company or itertools.repeat(False))
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter_ns=lambda: int(1e3 * sides.now_us)))
    result, _ = measure(
        cast(Exchange, sides), DrawSpec("1", "tiny", "bf16"), plan=plan("standard"), calls=CALLS, rounds=ROUNDS, on_gpu=True,
        floor_us=None, note="", first_call_us=None, progress=lambda text: None,
    )  # fmt: skip
    return result, sides


def test_an_uncontended_candidate_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    result, sides = timed(monkeypatch, itertools.repeat(0.0))
    assert sides.queued == ROUNDS == len(result.candidate_walls_us)
    assert sides.order == "RCCR" * (ROUNDS // 2)
    assert len(result.empty_walls_us) == ROUNDS
    assert (result.reference_wall_us, result.candidate_wall_us) == pytest.approx((REFERENCE_US, CANDIDATE_US))
    assert result.decision == "faster"


def test_a_machine_that_was_busy_for_a_while_clears_it(monkeypatch: pytest.MonkeyPatch) -> None:
    result, sides = timed(monkeypatch, itertools.chain([30_000.0] * ROUNDS, itertools.repeat(0.0)))
    assert sides.queued == 2 * ROUNDS == len(result.candidate_walls_us)
    assert result.candidate_wall_us == pytest.approx(CANDIDATE_US)


def test_who_takes_too_long_again_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Decided, match="do not account for the time that passed") as decided:
        timed(monkeypatch, itertools.repeat(30_000.0))
    assert decided.value.verdict is Verdict.REJECTED


def test_rounds_with_company_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    company = itertools.chain([False, False, True, True], itertools.repeat(False))
    result, sides = timed(monkeypatch, itertools.repeat(0.0), company)
    assert result.rounds == ROUNDS == len(result.reference_samples_us) == len(result.candidate_walls_us)
    assert sides.order == "RC" + "CR" * 3 + "RCCR" * (ROUNDS // 2 - 1), "those that count alternate"


@pytest.mark.parametrize(
    ("kind", "ends", "expected"),
    [
        (Disturbed, False, Verdict.REJECTED),
        (DeviceAtWork, True, Verdict.REJECTED),
        (DeviceAtWork, False, Verdict.HARNESS_ERROR),
    ],
    ids=["processes", "its kernels", "somebody else's kernels"],
)
def test_company_that_stays_is_the_candidates_if_it_ends_with_it(
    monkeypatch: pytest.MonkeyPatch, kind: type[Disturbed], ends: bool, expected: Verdict
) -> None:
    monkeypatch.setattr(Sides, "kind", kind)
    monkeypatch.setattr(Sides, "ends", ends)
    with pytest.raises(Decided, match="work beside the reference, in 3 of 3 attempts") as decided:
        timed(monkeypatch, itertools.repeat(0.0), itertools.repeat(True))
    assert decided.value.verdict is expected


def test_times_that_cannot_be_are_believed_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Longer(Sides):
        def run_candidate(self, schedule: Schedule, *, extra_s: float = 0.0) -> Reports:
            report = super().run_candidate(schedule)[0]
            return {
                0: replace(report, calls=tuple((start, end + 10**9, end + 10**9) for start, end, _ in report.calls))
            }

    monkeypatch.setattr(sys.modules[__name__], "Sides", Longer)
    with pytest.raises(Decided, match="report more time than has passed"):
        timed(monkeypatch, itertools.repeat(0.0))
