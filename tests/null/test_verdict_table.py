"""Verdicts that need not be reached again: the same file, case, kind of run, versions and judge, and no other."""

import json
from pathlib import Path
from typing import Any

import pytest

from pkb.types.plan import PLANS
from program_files import program

ROW = {
    "verdict": "correct", "ranks": 4, "size": "paper", "plan": "standard", "timing": None, "candidate": {"sha256": "a"},
    "problem": {"version": 3, "baseline_version": None}, "suite": {"version": 3, "judge": 3},
}  # fmt: skip


@pytest.fixture
def table() -> Any:
    return program("benchmarks/verdict_table.py")


def is_done(table: Any, folder: Path, row: dict[str, Any], **asked: Any) -> bool:
    path = folder / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    wanted = table.Done("a", 4, "paper", "standard", False, (3, None, 3))
    return wanted._replace(**asked) in table.done_in([path, folder / "missing.jsonl"])


def test_what_is_the_same_is_done_and_what_differs_is_not(table: Any, tmp_path: Path) -> None:
    assert is_done(table, tmp_path, ROW)
    for other in (
        {"ranks": 8}, {"size": "real"}, {"plan": "times-only"}, {"candidate": {"sha256": "b"}},
        {"suite": {"judge": 2}}, {"suite": None}, {"problem": {"version": 2}},
        {"problem": {"version": 3, "baseline_version": 1}}, {"verdict": "harness_error"},
    ):  # fmt: skip
        assert not is_done(table, tmp_path, ROW | other), other


def test_times_are_taken_where_there_are_none(table: Any, tmp_path: Path) -> None:
    assert not is_done(table, tmp_path, ROW, timed=True)
    assert is_done(table, tmp_path, ROW | {"timing": {}}, timed=True)
    assert is_done(table, tmp_path, ROW | {"timing": {}}), "who was timed was judged too"
    assert is_done(table, tmp_path, ROW | {"verdict": "wrong"}, timed=True), "a failure will have no times"


def test_times_only_is_timed_as_the_plan_is_and_looks_for_no_races(table: Any) -> None:
    full = PLANS["standard"]
    brief = table.times_only(full)
    assert brief.name != full.name
    assert brief.race_calls == brief.race_traces == brief.second_world_trials == brief.odd_trials == 0
    for name in ("timing_rounds", "calls_per_round", "warmup_calls", "verify_share"):
        assert getattr(brief, name) == getattr(full, name)
