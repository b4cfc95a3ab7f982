"""What is measured once more: rounds in which the reference had no common time origin, and suspect candidates, which are
rejected only if that does not clear them."""

import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

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

    def __init__(self, disturbances_us: Iterator[float], origins: Iterator[bool]) -> None:
        self.now_us, self.slots, self.disturbances_us = 0.0, itertools.count(), disturbances_us
        self.queued, self.origins = 0, origins
        self.order = ""  # R and C as they were timed

    def deliver(self, spec: DrawSpec, count: int, *, keep: bool = False) -> tuple[int, ...]:
        return tuple(itertools.islice(self.slots, count))

    def run_oracle(self, schedule: Schedule, *, extra_s: float = 0.0) -> Reports:
        if not schedule.cover_us or next(self.origins):
            return {0: self._run(schedule, REFERENCE_US)}
        late = self._run(schedule, REFERENCE_US, longer_by_us=1e6)  # more than has passed
        return {0: replace(late, common_origin=False)}

    def run_candidate(self, schedule: Schedule, *, extra_s: float = 0.0) -> Reports:
        if len(schedule.slots) == CALLS and not schedule.aligned:
            self.queued += 1
            self.now_us += next(self.disturbances_us)
        return {0: self._run(schedule, CANDIDATE_US)}

    def _run(self, schedule: Schedule, us: float, longer_by_us: float = 0.0) -> BatchReport:
        calls = len(schedule.slots)
        self.now_us += EMPTY_US + us * calls
        self.order += ("C" if us == CANDIDATE_US else "R") if schedule.cover_us else ""
        us += longer_by_us
        marks = [(1000 * n, int(1000 * (n + us)), int(1000 * (n + us))) for n in range(calls)]
        # What a candidate says of its own origin must not matter.
        return BatchReport(tuple(marks), ((),) * calls, (5.0,) * calls, common_origin=us != CANDIDATE_US)

    def check(self, slots: tuple[int, ...], *, words: str) -> Outcome:
        return Outcome()

    def wake(self) -> None: ...
    def release(self) -> None: ...
    def drop(self, *, keep_memory: bool = False) -> None: ...


def timed(
    monkeypatch: pytest.MonkeyPatch, disturbances_us: Iterator[float], origins: Iterator[bool] | None = None
) -> tuple[Timing, Sides]:
    sides = Sides(disturbances_us, origins or itertools.repeat(True))
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
    assert len(result.empty_walls_us) == 3 * ROUNDS
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


def test_rounds_without_a_common_origin_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    origins = itertools.chain([True, False, False], itertools.repeat(True))
    result, sides = timed(monkeypatch, itertools.repeat(0.0), origins)
    assert (result.rounds, sides.queued) == (ROUNDS, ROUNDS + 2)
    assert sides.order == "RC" + "CR" * 2 + "CR" + "RCCR" * (ROUNDS // 2 - 1), "those that count alternate"
    assert {us for one in result.reference_samples_us for us in one} == {REFERENCE_US}
    assert len(result.candidate_samples_us) == ROUNDS


def test_half_of_the_rounds_will_do_and_fewer_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for good, believed in ((ROUNDS // 2, True), (ROUNDS // 2 - 1, False)):
        origins = itertools.chain([True] * good, itertools.repeat(False, 2 * ROUNDS))
        result, _ = timed(monkeypatch, itertools.repeat(0.0), origins)
        assert result.rounds == (good if believed else 2 * ROUNDS)
        assert result.decision == ("faster" if believed else "unproven")
        assert ("began together in 3 of 16 rounds" in result.note) is not believed
        assert len(result.candidate_samples_us) == len(result.reference_samples_us) == result.rounds


@pytest.mark.parametrize("common_origin", [True, False])
def test_times_that_cannot_be_are_believed_of_nobody_but_who_had_no_common_origin(
    monkeypatch: pytest.MonkeyPatch, common_origin: bool
) -> None:
    class Longer(Sides):
        def run_candidate(self, schedule: Schedule, *, extra_s: float = 0.0) -> Reports:
            return {0: replace(self._run(schedule, CANDIDATE_US, longer_by_us=1e6), common_origin=common_origin)}

    monkeypatch.setattr(sys.modules[__name__], "Sides", Longer)
    if common_origin:
        with pytest.raises(Decided, match="report more time than has passed"):
            timed(monkeypatch, itertools.repeat(0.0))
        return
    result, _ = timed(monkeypatch, itertools.repeat(0.0))
    assert result.candidate_us == CANDIDATE_US + 1e6
    assert result.decision == "slower"
