"""What the judge's statistics can do with the noise that was measured: no false alarms, gains of 5 % found, forgers unpaid.

Seeded; the program that makes the curves of docs/measuring.md does the same with more evaluations."""

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "estimator.py"


@cache
def estimator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("estimator", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["estimator"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def noises(*, long: bool) -> list[object]:
    every = estimator().measured_noise()
    return [one for one in every if (one.call_us >= estimator().LONG_US) == long]


def test_there_is_enough_noise_to_draw_from() -> None:
    assert len(noises(long=True)) >= 10
    assert len(noises(long=False)) >= 20


@pytest.mark.parametrize("long", [True, False])
def test_unchanged_code_is_not_faster(long: bool) -> None:
    """At most 2.5 %, however often the samples are looked at, by the ranks' clocks alone: the window only takes away."""
    found = estimator().shares(noises(long=long), 1.0, 80, window=False)
    assert found.faster <= 0.025
    assert found.slower <= 0.025


def test_five_percent_are_found_in_calls_of_200_us_and_more() -> None:
    found = [estimator().shares(noises(long=True), 1.05, 200, seed=seed).faster for seed in (0, 1)]
    assert sum(found) / len(found) >= 0.9


def test_what_is_far_from_the_reference_takes_half_of_the_rounds() -> None:
    found = estimator().shares(noises(long=True), 2.0, 30)
    assert found.faster == 1.0
    assert found.rounds < 6


@pytest.mark.parametrize("claimed", [1.3, 1.8])
def test_forged_times_of_unchanged_code_are_unproven(claimed: float) -> None:
    found = estimator().shares(noises(long=True), 1.0, 40, claimed=claimed)
    assert found.faster <= 0.025
    assert found.unproven >= 0.9


def test_the_records_of_several_kinds_anew() -> None:
    rows = {row.name: row for row in estimator().anew()}
    row = rows["82_vocab_parallel_log_prob_topk at real, 4 ranks"]
    assert row.then[0] == pytest.approx(54.3, abs=0.1)
    assert row.now[0] == pytest.approx(32.1, abs=0.5)
    assert row.now[2] / row.now[1] < 1.1 < 2.5 < row.then[2] / row.then[1]
