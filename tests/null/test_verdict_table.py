"""Verdicts that need not be reached again: the same file, kit, case, kind of run, versions and judge, and no other."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pkb.problems.suite import suite
from pkb.types.plan import PLANS
from program_files import program

ROW: dict[str, Any] = {
    "verdict": "correct", "platform": "virtual", "ranks": 4, "size": "paper", "plan": "standard", "timing": None,
    "candidate": {"sha256": "a"},
    "problem": {"version": 3, "baseline_version": None}, "suite": {"version": 3, "judge": 3}, "environment": {"kit": "k"},
}  # fmt: skip


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Judge 3 takes other times than judge 2, and judges alike."""
    monkeypatch.setattr(program("benchmarks/kernel_records.py"), "OTHER_TIMES_ALONE", {3})
    monkeypatch.setattr(sys.modules["kernel_records"], "SEVERAL_STARTS", {99})
    program("benchmarks/lanes.py")
    return program("benchmarks/verdict_table.py")


def is_done(table: Any, folder: Path, row: dict[str, Any], **asked: Any) -> bool:
    path = folder / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    judge = table.judge_for(3, timed=asked.get("timed", False))
    wanted = table.Done("a", "k", "virtual", 4, "paper", "standard", False, (3, None, judge))
    return wanted._replace(**asked) in table.done_in([path, folder / "missing.jsonl"])


def test_what_is_the_same_is_done_and_what_differs_is_not(table: Any, tmp_path: Path) -> None:
    assert is_done(table, tmp_path, ROW)
    others: list[dict[str, Any]] = [
        {"ranks": 8}, {"size": "real"}, {"platform": "cpu"}, {"plan": "times-only"}, {"candidate": {"sha256": "b"}},
        {"suite": {"judge": 1}}, {"suite": {"judge": 4}}, {"suite": None}, {"problem": {"version": 2}},
        {"problem": {"version": 3, "baseline_version": 1}}, {"verdict": "harness_error"},
        {"environment": {"kit": "another"}}, {"environment": {}},
    ]  # fmt: skip
    for other in others:
        assert not is_done(table, tmp_path, ROW | other), other


def test_a_line_that_was_cut_off_costs_no_other(tmp_path: Path) -> None:
    records, path = program("benchmarks/kernel_records.py"), tmp_path / "rows.jsonl"
    path.write_text('{"size": "tiny"}\n{"size": "od')
    for size in ("paper", "real"):
        records.add_row(path, {"size": size})
    assert [row["size"] for row in records.read_rows(path)] == ["tiny", "paper", "real"]
    with pytest.raises(FileNotFoundError):
        records.read([tmp_path / "misspelt.jsonl"])


def test_times_are_taken_where_there_are_none(table: Any, tmp_path: Path) -> None:
    assert not is_done(table, tmp_path, ROW, timed=True)
    assert is_done(table, tmp_path, ROW | {"timing": {}}, timed=True)
    assert is_done(table, tmp_path, ROW | {"timing": {}}), "who was timed was judged too"
    assert is_done(table, tmp_path, ROW | {"verdict": "wrong"}, timed=True), "a failure will have no times"


def test_a_judge_that_takes_other_times_takes_them_again_and_judges_nobody_again(table: Any, tmp_path: Path) -> None:
    before = ROW | {"suite": {"version": 2, "judge": 2}, "timing": {}}
    assert is_done(table, tmp_path, before)
    assert not is_done(table, tmp_path, before, timed=True)
    assert not is_done(table, tmp_path, before | {"verdict": "wrong"}, timed=True)


def test_samples_that_can_be_concluded_anew_are_not_taken_again(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["kernel_records"], "CONCLUDED_ANEW", {3})
    before = ROW | {"suite": {"version": 2, "judge": 2}, "timing": {}}
    assert is_done(table, tmp_path, before, timed=True)
    assert not is_done(table, tmp_path, before | {"suite": {"judge": 1}}, timed=True)


@pytest.mark.parametrize(
    ("problem", "us", "speedup", "done"),
    [(13, 7000.0, 1.14, False), (13, 7000.0, 1.6, True), (13, 90.0, 1.14, True), (7, 900.0, 1.14, True)],
)
def test_a_gain_near_1_that_was_seen_in_one_start_is_timed_again(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: int, us: float, speedup: float, done: bool
) -> None:
    """Where it is not known by how much starts differ: of a GEMM with an all-reduce, if it takes long; not of a collective."""
    monkeypatch.setattr(sys.modules["kernel_records"], "SEVERAL_STARTS", {suite().judge_version})
    timing = {
        "reference_us": us, "candidate_us": us / speedup, "decision": "faster",
        "speedup": speedup, "speedup_low": speedup / 1.02, "speedup_high": speedup * 1.02,
    }  # fmt: skip
    row = ROW | {"timing": timing, "problem": {"id": problem} | ROW["problem"]}
    assert is_done(table, tmp_path, row, timed=True) is done
    assert is_done(table, tmp_path, row | {"timing": timing | {"start_rounds": [8, 4, 4]}}, timed=True)
    assert is_done(table, tmp_path, row), "it was judged"


def test_what_a_verdict_will_take_is_what_the_same_took_before(tmp_path: Path) -> None:
    records = program("benchmarks/kernel_records.py")
    case = records.Case(1, "paper", 4)
    one = ROW | {"problem": {"id": 1}, "stage_seconds": {"start": 4.0, "timing": 90.0}}
    other = ROW | {"problem": {"id": 2}, "timing": {"rounds": 6}, "stage_seconds": {"start": 6.0, "timing": 50.0}}
    broken = one | {"verdict": "harness_error", "stage_seconds": {"start": 1.0}}
    assert records.expected_s([one, other, broken], case, timed=False) == 4.0
    assert records.expected_s([one, other, broken], case, timed=True) == 56.0, "of another, which was timed"
    assert records.expected_s([one], case._replace(ranks=8), timed=False) is None


@pytest.mark.parametrize(("start", "timing_s", "seconds"), [(3.0, 7.0, 50.0), (None, 56.0, 61.0 * 3 - 5.0)])
def test_what_was_timed_in_one_start_and_will_be_in_several_takes_as_many_times(
    monkeypatch: pytest.MonkeyPatch, start: float | None, timing_s: float, seconds: float
) -> None:
    """Begun with less time than that, it would be interrupted, and the time be lost."""
    records = program("benchmarks/kernel_records.py")
    monkeypatch.setattr(records, "SEVERAL_STARTS", {suite().judge_version})
    timing = {
        "reference_us": 7000.0, "decision": "faster", "speedup": 1.14, "speedup_low": 1.12, "speedup_high": 1.16,
    }  # fmt: skip
    stages = {"start": start, "timing": timing_s} if start else {"timing": timing_s}
    row = ROW | {"problem": {"id": 13}, "timing": timing, "stage_seconds": stages, "suite": {"judge": 1}}
    case = records.Case(13, "paper", 4)
    assert records.expected_s([row], case, timed=True) == seconds
    assert records.expected_s([row], case, timed=False) == (start or 0.0)
    far = row | {"timing": timing | {"speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1}}
    assert records.expected_s([far], case, timed=True) == (start or 0.0) + timing_s


def test_times_only_is_timed_as_the_plan_is_and_looks_for_no_races(table: Any) -> None:
    full = PLANS["standard"]
    brief = table.times_only(full)
    assert brief.name != full.name
    assert not brief.observe
    assert all(plan.observe for plan in PLANS.values()), "what moves the data belongs to every verdict"
    assert brief.race_calls == brief.race_traces == brief.second_world_trials == brief.odd_trials == 0
    for name in ("timing_rounds", "calls_per_round", "warmup_calls", "verify_share"):
        assert getattr(brief, name) == getattr(full, name)
