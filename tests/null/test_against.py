"""What a candidate is timed against: a gain over a slow reference is no gain over the baseline."""

import contextlib
import io
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from rich.console import Console
from typer.testing import CliRunner
from verdict_examples import TIMING

from pkb.cli.main import app
from pkb.cli.panel_timing import timing_part
from pkb.cluster.settings import SweepSettings
from pkb.judge.crew.company import Disturbed
from pkb.judge.decision import Decided
from pkb.judge.exchange import Exchange, Outcome, Reports
from pkb.judge.timing import clock, other, rounds
from pkb.judge.timing import measure as measure_module
from pkb.judge.timing.measure import measure
from pkb.judge.timing.other import ROUNDS, product, with_other_reading
from pkb.judge.timing.statistics import Paired, Ratio, estimate
from pkb.types.plan import plan
from pkb.types.protocol.commands import DrawSpec, Schedule
from pkb.types.protocol.replies import BatchReport
from pkb.types.stock import Against
from pkb.types.timing import Decision, OtherReading, Timing
from pkb.types.verdict import Verdict

REFERENCE_US, BASELINE_US, EMPTY_US, CALLS = 2000.0, 1000.0, 300.0, 4
EXAMPLE = Path(__file__).parents[2] / "src" / "pkb" / "cli" / "demo_candidates" / "1_allreduce_symmetric.py"
SPEC = DrawSpec("1", "tiny", "bf16")


class Sides:
    """One rank a side, on a clock of its own: a candidate as fast as the baseline, and a reference half as fast."""

    def __init__(self, noise: float, company: Iterator[bool]) -> None:
        self.now_us, self.slots, self.noise, self.company = 0.0, itertools.count(), noise, company
        self.oracle = self.candidate = None
        self.stopped = False
        self.ran: list[str] = []
        self.drawn: dict[int, str] = {}
        self.dice = random.Random(1)

    def deliver(self, spec: DrawSpec, count: int, *, keep: bool = False, kinds: Sequence[str] = ()) -> tuple[int, ...]:
        return self.new_slots(count)

    def new_slots(self, count: int) -> tuple[int, ...]:
        return tuple(itertools.islice(self.slots, count))

    def draw(self, spec: DrawSpec, slots: Sequence[int], kinds: Sequence[str]) -> None:
        assert not self.drawn, "one batch at a time"
        self.drawn = dict(zip(slots, kinds, strict=True))

    def drop_drawn(self, *, keep_memory: bool = True) -> None:
        self.drawn = {}

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        self.stopped = True
        yield
        self.stopped = False
        if next(self.company):
            raise Disturbed("somebody is there")

    def ends_with_the_candidate(self) -> bool:
        return True

    def run_oracle(self, schedule: Schedule, *, function: str, extra_s: float = 0.0) -> Reports:
        if schedule.cover_us:
            assert self.stopped, "what is timed runs alone"
        self.ran.append(function)
        return self._run(schedule, 0.0 if schedule.empty else BASELINE_US if function == "baseline" else REFERENCE_US)

    def run_candidate(self, schedule: Schedule, *, extra_s: float = 0.0) -> Reports:
        assert not self.stopped
        return self._run(schedule, BASELINE_US)

    def _run(self, schedule: Schedule, us: float) -> Reports:
        marks, took = [], 0.0
        for n in range(len(schedule.slots)):
            call_us = us * math.exp(self.dice.gauss(0, self.noise))
            took += call_us
            marks.append((1000 * n, int(1000 * (n + call_us)), int(1000 * (n + call_us))))
        self.now_us += EMPTY_US + took
        return {0: BatchReport(tuple(marks), ((),) * len(marks), (5.0,) * len(marks))}

    def check(self, slots: tuple[int, ...], *, words: str) -> Outcome:
        return Outcome()

    def look(self) -> None: ...
    def wake(self, crew: None) -> None: ...
    def release(self) -> None: ...
    def drop(self, *, keep_memory: bool = False) -> None: ...


def timed(
    monkeypatch: pytest.MonkeyPatch, against: Against, *, noise: float = 0.02, company: Iterator[bool] | None = None
) -> tuple[Timing, Sides]:
    sides = Sides(noise, company or itertools.repeat(False))
    now = SimpleNamespace(perf_counter_ns=lambda: int(1e3 * sides.now_us), monotonic=lambda: sides.now_us / 1e6)
    for module in (clock, rounds, measure_module, other):
        monkeypatch.setattr(module, "time", now)
    exchange = cast(Exchange, sides)
    timing, _ = measure(
        exchange, SPEC, plan=plan("standard"), calls=CALLS, rounds=8, on_gpu=True, floor_us=None, note="",
        first_call_us=None, progress=lambda text: None, against=against,
    )  # fmt: skip
    assert set(sides.ran) == {against}
    return with_other_reading(exchange, SPEC, timing, calls=CALLS, on_gpu=True, progress=lambda text: None), sides


def test_as_fast_as_the_baseline_is_not_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    timing, _ = timed(monkeypatch, "baseline")
    assert timing.decision in (Decision.SAME, Decision.UNPROVEN)
    assert timing.speedup == pytest.approx(1.0, rel=0.05)
    assert timing.other is not None
    assert (timing.against, timing.other.against) == ("baseline", "reference")
    assert timing.other.speedup == pytest.approx(2.0, rel=0.05)
    assert timing.other.speedup_low < 2.0 < timing.other.speedup_high
    assert timing.other.us == pytest.approx(REFERENCE_US, rel=0.05)
    assert "us for the baseline" in timing.clock_agreement


def test_against_the_reference_the_same_candidate_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    timing, _ = timed(monkeypatch, "reference")
    assert timing.decision is Decision.FASTER
    assert timing.speedup == pytest.approx(2.0, rel=0.05)
    assert timing.other is not None
    assert (timing.against, timing.other.against) == ("reference", "baseline")
    assert timing.other.speedup == pytest.approx(1.0, rel=0.05)
    assert timing.other.us == pytest.approx(BASELINE_US, rel=0.05)


def test_the_second_reading_can_be_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    timing, _ = timed(monkeypatch, "baseline", noise=0.1)
    reading = timing.other
    assert reading is not None
    assert (reading.rounds, reading.calls) == (ROUNDS, ROUNDS * CALLS)
    ratio = estimate(Paired(reading.samples_us, reading.paired_samples_us)).rounds  # the start is in the other factor
    again = product(ratio, Ratio(timing.speedup, timing.speedup_low, timing.speedup_high))
    assert again == (reading.speedup, reading.speedup_low, reading.speedup_high)


def test_an_interval_is_wider_than_either_of_its_two() -> None:
    found = product(
        Ratio(2.0, 2.0 / math.exp(0.03), 2.0 * math.exp(0.03)), Ratio(1.5, 1.5 / math.exp(0.04), 1.5 * math.exp(0.04))
    )
    assert (found.value, found.low, found.high) == pytest.approx((3.0, 3.0 / math.exp(0.05), 3.0 * math.exp(0.05)))


def test_who_disturbs_the_second_reading_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could make the reference look slow."""
    calm, _ = timed(monkeypatch, "baseline")
    quiet = itertools.chain([False] * (2 * calm.rounds), itertools.repeat(True))
    with pytest.raises(Decided, match="work beside the reference") as decided:
        timed(monkeypatch, "baseline", company=quiet)
    assert decided.value.verdict is Verdict.REJECTED


def test_slow_references_get_fewer_calls_and_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other, "MOST_S", 1e-9)
    timing, _ = timed(monkeypatch, "baseline")
    assert timing.other is not None
    assert (timing.other.rounds, timing.other.calls) == (other.LEAST_ROUNDS, other.LEAST_ROUNDS * other.LEAST_CALLS)


@pytest.mark.parametrize(
    ("speedup", "main", "window_low", "expected"),
    [
        (2.0, Decision.FASTER, 1.0, Decision.FASTER),
        (2.0, Decision.SAME, 1.0, Decision.FASTER),
        (2.0, Decision.SAME, 0.4, Decision.UNPROVEN),
        (2.0, Decision.UNPROVEN, 0.4, Decision.UNPROVEN),
        (1.0, Decision.SLOWER, 0.4, Decision.SAME),
        (0.5, Decision.SLOWER, 1.0, Decision.SLOWER),
    ],
)
def test_a_gain_in_the_second_reading_must_show_on_the_host_wall_clock(
    speedup: float, main: Decision, window_low: float, expected: Decision
) -> None:
    """Ranks that claim half of what they take are level with the baseline, and would be twice as fast as the reference."""
    found = other.decision(Ratio(speedup, 0.95 * speedup, 1.05 * speedup), Ratio(2.0, 1.9, 2.1), main, window_low)
    assert found is expected


def test_the_panel_shows_both_readings() -> None:
    reading = OtherReading("reference", 900.0, 4.0, 3.9, 4.1, Decision.FASTER, 8, 4)
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(
        timing_part(replace(TIMING, against="baseline", decision=Decision.FASTER, other=reading), platform="node")
    )
    text = console.export_text()
    assert "faster than the baseline" in text
    assert "4.00x against the reference, 95 % interval 3.90 to 4.10" in text


def test_what_is_not_known_is_refused() -> None:
    refused = CliRunner().invoke(app, ["eval", str(EXAMPLE), "--platform", "cpu", "--against", "moon"])
    assert refused.exit_code != 0
    assert "--against 'moon' is not known" in f"{refused.output}{refused.exception}"


def test_a_run_that_was_begun_against_the_reference_goes_on_so() -> None:
    assert SweepSettings.of({"settings": {"timing": True}}).against == "reference"
    assert SweepSettings.of({}).against == "baseline"
    assert SweepSettings.of({"settings": SweepSettings().to_dict()}).against == "baseline"
