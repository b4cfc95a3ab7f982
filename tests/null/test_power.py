"""What the judge's statistics can do with the noise that was measured: no false alarms, gains found, forgers unpaid.

Seeded; the program that makes docs/power.md does the same with more evaluations. A bound on a rate of 2.5 % is the largest
count that is no less likely than 1 %."""

import importlib
import random
import statistics
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pkb.judge.timing.statistics import LONG_START, SHORT_START

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
OLDER, AS_IT_WAS, WINDOW = "older", "window as it was", "through the window"


@cache
def estimator() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("estimator")
    finally:
        sys.path.remove(str(BENCHMARKS))


@cache
def noises(records: str, *, long: bool) -> list[Any]:
    found: list[Any] = estimator().groups()[f"{records}, {'200 us and more' if long else 'shorter'}"]
    return found


def test_there_is_enough_noise_to_draw_from() -> None:
    assert len(noises(OLDER, long=True)) >= 10
    assert len(noises(OLDER, long=False)) >= 20
    assert len(noises(AS_IT_WAS, long=True)) >= 5
    assert len(noises(WINDOW, long=True)) >= 4
    assert len(noises(WINDOW, long=False)) >= 18


def test_a_record_that_was_stopped_early_is_planned_as_the_judge_plans_it() -> None:
    """Four rounds of eight, or 32: neither is what is planned for the case."""
    planned = {one.name: one.planned for one in noises(AS_IT_WAS, long=True)}
    assert planned["01 real, 4 ranks"] == planned["07 real, 4 ranks"] == 8
    assert planned["03 real, 4 ranks"] == 4


@pytest.mark.parametrize("records", [OLDER, WINDOW])
def test_unchanged_code_is_not_faster(records: str) -> None:
    """However often the samples are looked at, by the ranks' clocks alone: the window only takes away."""
    found = estimator().shares(noises(records, long=True), 1.0, 200, window=False)
    assert round(200 * found.faster) <= 11
    assert round(200 * found.slower) <= 11
    short = estimator().shares(noises(records, long=False), 1.0, 80, window=False)
    assert round(80 * short.faster) <= 6
    assert round(80 * short.slower) <= 6


def test_a_judge_that_takes_all_starts_for_alike_calls_unchanged_code_faster_and_slower() -> None:
    """What the test above is worth: the same bounds, without the judge's term for what starts differ by."""
    found = estimator().shares(noises(WINDOW, long=False), 1.0, 80, window=False, term=False)
    assert round(80 * found.faster) > 6
    assert round(80 * found.slower) > 6


@pytest.mark.parametrize(("long", "term"), [(True, LONG_START), (False, SHORT_START)])
def test_the_judges_term_is_what_starts_differ_by(long: bool, term: float) -> None:
    """On any day, within minutes, and as its own candidate: no less than each, and rounded up by half at most."""
    known = estimator().starts(long=long)
    largest = max(known.any_day.value, known.together.value, known.control.value)
    assert largest <= term <= 1.5 * largest
    assert known.any_day.degrees >= 15


@pytest.mark.parametrize("spread", [0.06, 0.11])
def test_where_nobody_knows_how_far_starts_differ_more_of_them_are_made(spread: float) -> None:
    """With the noise of measured rounds: one start errs in a third, several in no more than the promised 2.5 %."""
    long = noises(WINDOW, long=True)
    one = estimator().shares(long, 1.0, 80, window=False, unknown=spread, restarts=False)
    assert one.faster > 0.2
    several = estimator().shares(long, 1.0, 80, window=False, unknown=spread)
    assert round(80 * several.faster) <= 6
    assert round(80 * several.slower) <= 6


def test_a_gain_of_five_percent_is_found_in_several_starts_too() -> None:
    found = estimator().shares(noises(WINDOW, long=True), 1.05, 60, unknown=LONG_START)
    assert found.faster >= 0.9


def test_hostile_noise_makes_nobody_faster() -> None:
    """Two values, tails without a mean, drift, rounds that depend on each other; few rounds with two calls each."""
    for name, side in estimator().HOSTILE.items():
        found = estimator().hostile(side, 60, planned=4)
        assert round(60 * found.faster) <= 5, name


def test_drawn_rounds_differ_as_much_as_those_that_were_measured() -> None:
    """Not less, and hardly more: of eight rounds and more, whose spread says something."""
    source = random.Random(0)
    for noise in noises(OLDER, long=True) + noises(AS_IT_WAS, long=True) + noises(WINDOW, long=True):
        for side in noise.sides:
            measured = side.common.values
            if len(measured) < 8:
                continue
            drawn = [statistics.median(side.draw(n % len(measured), source)) for n in range(400)]
            assert 0.8 < statistics.stdev(drawn) / statistics.stdev(measured) < 1.35, noise.name


@pytest.mark.parametrize(("records", "least"), [(OLDER, 0.9), (AS_IT_WAS, 0.65), (WINDOW, 0.9)])
def test_five_percent_in_calls_of_200_us_and_more(records: str, least: float) -> None:
    """90 % is what was aimed at. docs/power.md says where it was missed, and why."""
    alone, both = (estimator().shares(noises(records, long=True), 1.05, 100, window=window) for window in (False, True))
    assert both.faster >= least
    assert alone.faster >= 0.8, "by the ranks' clocks alone"


def test_what_is_far_from_the_reference_takes_half_of_the_rounds() -> None:
    found = estimator().shares(noises(OLDER, long=True), 2.0, 30)
    assert found.faster == 1.0
    assert found.rounds < 6


@pytest.mark.parametrize("records", [OLDER, WINDOW])
def test_forged_times_of_unchanged_code_are_unproven(records: str) -> None:
    for claimed in (1.3, 1.8):
        found = estimator().shares(noises(records, long=True), 1.0, 60, claimed=claimed)
        assert round(60 * found.faster) <= 5
        assert found.unproven >= 0.9


def test_the_records_of_several_kinds_anew() -> None:
    rows = {row.name: row for row in estimator().anew()}
    row = rows["82_vocab_parallel_log_prob_topk at real, 4 ranks"]
    assert row.then[0] == pytest.approx(54.3, abs=0.1)
    assert row.now[0] == pytest.approx(32.1, abs=0.5)
    assert row.now[2] / row.now[1] < 1.1 < 2.5 < row.then[2] / row.then[1]
