"""How many rounds are made: few where the answer is clear, more where it is near; again those in which something ran beside
the reference; and again of suspect candidates, which are rejected only if that does not clear them."""

import contextlib
import itertools
import sys
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from pkb.judge.crew.company import DeviceAtWork, Disturbed
from pkb.judge.decision import Decided
from pkb.judge.exchange import Exchange, Outcome, Reports
from pkb.judge.timing import clock, rounds
from pkb.judge.timing import measure as measure_module
from pkb.judge.timing.measure import ONE_START, measure
from pkb.judge.timing.starts import Starts
from pkb.types.plan import MORE_S, plan
from pkb.types.protocol.commands import DrawSpec, Schedule
from pkb.types.protocol.replies import BatchReport
from pkb.types.timing import Decision
from pkb.types.verdict import Timing, Verdict

ROUNDS, CALLS = 8, 2
REFERENCE_US, CANDIDATE_US, EMPTY_US = 5000.0, 1000.0, 3000.0


class Sides:
    """One rank on each side, on a clock of its own: what calls take is known."""

    kind: type[Disturbed] = Disturbed
    ends = True

    def __init__(self, disturbances_us: Iterator[float], candidate_us: float, company: Iterator[bool]) -> None:
        self.now_us, self.slots, self.disturbances_us = 0.0, itertools.count(), disturbances_us
        self.candidate_us, self.company = candidate_us, company
        self.queued, self.repeated = 0, 0
        self.order = ""  # R and C as they were timed
        self.limits_s: set[float] = set()
        self.oracle = self.candidate = None

    def deliver(self, spec: DrawSpec, count: int, *, keep: bool = False, kinds: Sequence[str] = ()) -> tuple[int, ...]:
        assert len(kinds) == count
        return tuple(itertools.islice(self.slots, count))

    def run_oracle(self, schedule: Schedule, *, function: str, extra_s: float = 0.0) -> Reports:
        return {0: self._run(schedule, 0.0 if schedule.empty else REFERENCE_US, "R")}

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        self.now_us += 1e6  # however long it takes to be alone, it is not in what is measured
        yield
        if next(self.company):
            raise self.kind("somebody is there")

    def ends_with_the_candidate(self) -> bool:
        return self.ends

    def run_candidate(self, schedule: Schedule, *, extra_s: float = 0.0) -> Reports:
        self.limits_s.add(extra_s)
        if self.order and not schedule.aligned:
            self.queued += 1
            self.now_us += next(self.disturbances_us)
        return {0: self._run(schedule, self.candidate_us, "C")}

    def _run(self, schedule: Schedule, us: float, side: str, longer_by_us: float = 0.0) -> BatchReport:
        calls = len(schedule.slots)
        self.now_us += EMPTY_US + us * calls
        self.order += side if schedule.cover_us else ""
        self.repeated += calls if not self.order and not schedule.aligned else 0
        us += longer_by_us
        marks = [(1000 * n, int(1000 * (n + us)), int(1000 * (n + us))) for n in range(calls)]
        return BatchReport(tuple(marks), ((),) * calls, (5.0,) * calls)

    def check(self, slots: tuple[int, ...], *, words: str) -> Outcome:
        return Outcome()

    def look(self) -> None:
        self.now_us += 1e4  # not in what is measured either

    def wake(self, crew: None) -> None: ...
    def release(self) -> None: ...
    def drop(self, *, keep_memory: bool = False) -> None: ...


def timed(
    monkeypatch: pytest.MonkeyPatch,
    disturbances_us: Iterator[float],
    *,
    candidate_us: float = CANDIDATE_US,
    plan_name: str = "standard",
    kind: type[Sides] = Sides,
    company: Iterator[bool] | None = None,
    mutates: bool = False,
    more_s: float = MORE_S,
    starts: Starts | None = None,
) -> tuple[Timing, Sides]:
    sides = kind(disturbances_us, candidate_us, company or itertools.repeat(False))
    now = SimpleNamespace(perf_counter_ns=lambda: int(1e3 * sides.now_us), monotonic=lambda: sides.now_us / 1e6)
    for module in (clock, rounds, measure_module):
        monkeypatch.setattr(module, "time", now)
    result, _ = measure(
        cast(Exchange, sides), DrawSpec("1", "tiny", "bf16"), plan=plan(plan_name), calls=CALLS, rounds=ROUNDS, on_gpu=True,
        floor_us=None, note="", first_call_us=None, progress=lambda text: None,
        mutates=mutates, more_s=more_s, starts=starts,
    )  # fmt: skip
    return result, sides


def test_without_time_for_further_rounds_and_starts_the_planned_ones_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gain that needs several starts is not claimed; one that needs none is."""

    def never() -> Exchange:
        raise AssertionError("started again")

    near, _ = timed(
        monkeypatch, itertools.repeat(0.0), candidate_us=4500.0, more_s=0.0, starts=Starts(never, more_s=0.0)
    )
    assert (near.decision, near.rounds, near.start_rounds) == (Decision.UNPROVEN, ROUNDS, ())
    assert near.note == ONE_START
    far, _ = timed(monkeypatch, itertools.repeat(0.0), more_s=0.0, starts=Starts(never, more_s=0.0))
    assert (far.decision, far.note) == (Decision.FASTER, "")
    with pytest.raises(AssertionError, match="started again"):
        timed(monkeypatch, itertools.repeat(0.0), candidate_us=4500.0, starts=Starts(never))


@pytest.mark.parametrize(("mutates", "reference_us"), [(True, REFERENCE_US), (False, 2 * clock.LONGEST_US)])
def test_calls_that_change_their_arguments_or_take_long_are_not_repeated(
    monkeypatch: pytest.MonkeyPatch, mutates: bool, reference_us: float
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "REFERENCE_US", reference_us)
    result, _ = timed(monkeypatch, itertools.repeat(0.0), mutates=mutates)
    assert len(result.reference_walls_us) == len(result.empty_walls_us) == len(result.candidate_walls_us)


def test_what_is_far_from_the_reference_is_settled_by_half_of_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    result, sides = timed(monkeypatch, itertools.repeat(0.0))
    assert sides.queued == ROUNDS // 2 == len(result.candidate_walls_us) == result.rounds
    assert sides.order == "RCCR" * (ROUNDS // 4)
    assert len(result.reference_walls_us) == len(result.empty_walls_us) == clock.REPEATS * result.rounds
    assert (result.reference_wall_us, result.candidate_wall_us) == pytest.approx((REFERENCE_US, CANDIDATE_US))
    assert result.decision == "faster"
    assert (result.window_speedup_low, result.window_speedup_high) == pytest.approx((5.0, 5.0))


def test_what_the_window_does_not_confirm_is_given_all_rounds_and_stays_unproven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Faster by the ranks' clocks by a fifth, and as slow as the reference on the judge's: only that one is asked again."""
    claimed_us = REFERENCE_US / 1.2
    lost_us = CALLS * (REFERENCE_US - claimed_us)
    result, _ = timed(monkeypatch, itertools.repeat(lost_us), candidate_us=claimed_us)
    assert result.rounds == ROUNDS
    assert len(result.candidate_walls_us) == 8 * ROUNDS
    assert (result.decision, result.speedup_low > 1) == ("unproven", True)
    assert result.window_speedup == pytest.approx(1.0)


def test_rounds_beyond_the_plan_have_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Near the reference, and a batch of two calls takes seconds: then as many more are made as two minutes allow."""
    monkeypatch.setattr(sys.modules[__name__], "REFERENCE_US", 2e6)
    claimed_us = 2e6 / 1.2
    result, _ = timed(monkeypatch, itertools.repeat(CALLS * (2e6 - claimed_us)), candidate_us=claimed_us)
    assert result.rounds == ROUNDS < len(result.candidate_walls_us) < 4 * ROUNDS
    assert result.decision == "unproven"


def test_what_is_too_near_to_tell_is_given_stamped_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of two values, so that the interval holds 1 to the end."""

    class Wavering(Sides):
        def run_candidate(self, schedule: Schedule, *, extra_s: float = 0.0) -> Reports:
            if schedule.aligned:
                self.candidate_us = REFERENCE_US * (1.2 if self.candidate_us < REFERENCE_US else 0.83)
            return super().run_candidate(schedule, extra_s=extra_s)

    result, _ = timed(monkeypatch, itertools.repeat(0.0), kind=Wavering)
    assert result.rounds == len(result.candidate_walls_us) > ROUNDS


def test_times_that_cannot_be_are_believed_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Longer(Sides):
        def run_candidate(self, schedule: Schedule, *, extra_s: float = 0.0) -> Reports:
            return {0: self._run(schedule, CANDIDATE_US, "C", longer_by_us=1e6)}

    with pytest.raises(Decided, match="report more time than has passed"):
        timed(monkeypatch, itertools.repeat(0.0), kind=Longer)


@pytest.mark.parametrize(("candidate_us", "least", "most"), [(1000.0, 500, 500), (2e6, 2, 20), (40e6, 2, 2)])
def test_warm_up_calls_are_no_reason_for_a_deadlock(
    monkeypatch: pytest.MonkeyPatch, candidate_us: float, least: int, most: int
) -> None:
    """Plan `paper` asks for 500. Each batch has a limit of its own, and there are no more of them than some seconds take."""
    monkeypatch.setattr(sys.modules[__name__], "REFERENCE_US", 1e6)
    result, sides = timed(monkeypatch, itertools.repeat(0.0), candidate_us=candidate_us, plan_name="paper")
    reference_calls = 10  # of a second each
    assert least <= sides.repeated - reference_calls <= most
    assert min(sides.limits_s) >= 30 + CALLS * 1.0, "what the reference needed for the same batch is on top"
    assert result.decision == ("faster" if candidate_us < 1e6 else "slower")


def test_a_machine_that_was_busy_for_a_while_clears_it(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = ROUNDS // 2
    result, sides = timed(monkeypatch, itertools.chain([30_000.0] * busy, itertools.repeat(0.0)))
    assert sides.queued == len(result.candidate_walls_us) >= busy + 2 * ROUNDS, "as many again as are planned, and more"
    assert (result.rounds, result.decision) == (ROUNDS, "faster"), "four fifths of the batches are undisturbed by then"
    assert result.candidate_wall_us == pytest.approx(CANDIDATE_US)


def test_who_takes_too_long_again_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Decided, match="do not account for the time that passed") as decided:
        timed(monkeypatch, itertools.repeat(30_000.0))
    assert decided.value.verdict is Verdict.REJECTED


def test_rounds_with_company_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    company = itertools.chain([False, False, True, True], itertools.repeat(False))
    result, sides = timed(monkeypatch, itertools.repeat(0.0), company=company)
    assert result.rounds == ROUNDS // 2 == len(result.reference_samples_us) == len(result.candidate_walls_us)
    assert sides.order == "RC" + "CR" * 3 + "RCCR" * (ROUNDS // 4 - 1), "those that count alternate"


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
        timed(monkeypatch, itertools.repeat(0.0), company=itertools.repeat(True))
    assert decided.value.verdict is expected
