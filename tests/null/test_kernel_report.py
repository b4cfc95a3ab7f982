"""The tables of docs/kernels.md: which verdict of a case counts, and what is said of times that an earlier version took."""

import hashlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pkb.problems import get
from pkb.roofline.hardware import load
from program_files import program

DOCS = Path(__file__).parents[2] / "docs"


JUDGE = 7


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The kernel's file reads `a`."""
    records = program("benchmarks/kernel_records.py")
    monkeypatch.setattr(records, "SOLUTIONS", tmp_path)
    (tmp_path / "a.py").write_text("a")
    return program("benchmarks/kernel_report.py")


def verdict(
    version: str = "a",
    *,
    us: float | None = None,
    verdict: str = "correct",
    times_only: bool = False,
    judge: int = JUDGE,
    at: str = "2026-01-02",
    problem: int = 1,
    other: dict[str, Any] | None = None,
    decision: str = "faster",
) -> dict[str, Any]:
    timing = {
        "reference_us": 200.0, "candidate_us": us, "speedup": 200 / us, "speedup_low": 190 / us,
        "speedup_high": 210 / us, "decision": decision, "window_speedup": 190 / us, "window_speedup_low": 150 / us,
        "window_speedup_high": None, "against": "baseline" if other else "reference", "other": other,
    } if us else None  # fmt: skip
    asked = get(problem)
    return {
        "problem": {"id": problem, "name": asked.name, "version": asked.version}, "size": "paper", "ranks": 8,
        "candidate": {"file": "a.py", "sha256": hashlib.sha256(version.encode()).hexdigest()},
        "dtype": "bf16", "verdict": verdict, "communication": "custom", "timing": timing, "started_at": at,
        "plan": "times-only" if times_only else "standard", "checks": [] if times_only else ["races: queued (1 x 2 calls)"],
        "suite": {"version": 1, "judge": judge} if judge else None,
    }  # fmt: skip


def text_of(report: ModuleType, folder: Path, *verdicts: dict[str, Any]) -> str:
    path = folder / "verdicts.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in verdicts))
    cases = report.read([path])
    text = str(report.page(cases, load("h200x8")))
    path.write_text("".join(json.dumps(one) + "\n" for one in report.kept(cases)))
    assert report.page(report.read([path]), load("h200x8")) == text, "what is kept says the same"
    return text


def row_of(text: str, kernel: str = "01_allreduce") -> list[str]:
    """Of the table of times."""
    _, _, below = text.partition("## Size `paper`, 8 ranks")
    line = next(line for line in below.splitlines() if line.startswith(f"| {kernel} "))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_a_row_joins_the_whole_verdict_with_times_of_the_same_kernel_problem_and_judge(
    report: ModuleType, tmp_path: Path
) -> None:
    for both in ([verdict(us=100, times_only=True), verdict()], [verdict(), verdict(us=100, times_only=True)]):
        text = text_of(report, tmp_path, *both)
        assert row_of(text)[:5] == ["100", "200", "2.00 (1.90 to 2.10), faster", "1.90 (1.50 to no end)", "the same"]
        assert row_of(text)[-1] == ""
        assert "1 of 1 rows have times, and 1 of those a verdict with races looked for" in text
        assert "1 of the 1 are `faster` than the baseline" in text


def test_races_are_never_taken_from_times(report: ModuleType, tmp_path: Path) -> None:
    text = text_of(report, tmp_path, verdict(us=100, times_only=True))
    assert row_of(text)[-1] == "races not looked for"
    assert "1 of 1 rows have times, and 0 of those a verdict" in text
    assert "paper: not judged" in text
    called_standard = verdict(us=100, times_only=True) | {"plan": "standard"}
    assert row_of(text_of(report, tmp_path, called_standard))[-1] == "races not looked for"


@pytest.mark.parametrize(
    ("older", "words"),
    [
        (verdict(us=100, judge=JUDGE - 1), "2026-01-02 (other judge)"),
        (verdict(us=100, judge=0), "2026-01-02 (other judge)"),
        (verdict("b", us=100), "2026-01-02 (other kernel)"),
        (verdict(us=100) | {"problem": {"id": 1, "name": "allreduce", "version": 1}}, "2026-01-02 (other problem)"),
    ],
)
def test_what_is_older_says_so_and_does_not_count(
    report: ModuleType, tmp_path: Path, older: dict[str, Any], words: str
) -> None:
    text = text_of(report, tmp_path, older, verdict(at="2026-01-03"))
    assert row_of(text)[0] == "100"
    assert row_of(text)[-1] == f"not timed since {words}"
    assert "0 of 1 rows have times, and 0 of those a verdict" in text
    text = text_of(report, tmp_path, older | {"timing": None}, verdict(us=50, times_only=True, at="2026-01-03"))
    assert row_of(text)[-1] == f"not judged since {words}"
    assert f"(paper; {words})" in text
    assert "1 of 1 rows have times, and 0 of those a verdict" in text


def test_the_baseline_decides_and_the_reference_stands_beside_it(report: ModuleType, tmp_path: Path) -> None:
    other = {
        "against": "reference", "us": 900.0, "speedup": 9.0, "speedup_low": 8.0, "speedup_high": 10.0, "decision": "faster",
    }  # fmt: skip
    one = verdict(us=199, problem=17, other=other, decision="same")
    text = text_of(report, tmp_path, one)
    row = row_of(text, "17_rope_allgather")
    assert row[2] == "1.01 (0.95 to 1.06), same"
    assert row[4:6] == ["900", "9.00 (8.00 to 10.00), faster"]
    assert "0 of the 1 are `faster` than the baseline" in text
    without = verdict(us=100, problem=17, judge=0)  # timed against the reference, when there was no baseline
    row = row_of(text_of(report, tmp_path, without), "17_rope_allgather")
    assert row[1:3] == ["", "not timed"]
    assert row[5] == "2.00 (1.90 to 2.10), faster"


def test_slower_than_before_is_named(report: ModuleType, tmp_path: Path) -> None:
    before = verdict("b", us=100, judge=0, at="2026-01-01")
    assert "Slower by more than 3%: none (of 1)" in text_of(report, tmp_path, before, verdict(us=102.9))
    text = text_of(report, tmp_path, before, verdict(us=103.1))
    assert "Slower by more than 3%: 01 at `paper` with 8 (1.03) (of 1)" in text
    assert "| 100 | 103 | 1.03 | 1.00 |" in text
    assert "Since before" not in text_of(report, tmp_path, before, verdict(at="2026-01-03"))


def test_good_times_do_not_hide_a_later_failure(report: ModuleType, tmp_path: Path) -> None:
    failed = verdict(verdict="deadlock")
    for later in ([], [verdict(us=50, times_only=True)]):
        text = text_of(report, tmp_path, verdict(us=100), failed, *later)
        assert row_of(text)[-1] == "deadlock, communication custom"
        assert "**paper: deadlock, custom**" in text
    text = text_of(report, tmp_path, verdict(us=100), failed, verdict())
    assert row_of(text)[-1] == "not timed"
    assert "deadlock" not in text


def test_a_verdict_on_the_machine_is_none_on_the_kernel(report: ModuleType, tmp_path: Path) -> None:
    text = text_of(report, tmp_path, verdict(us=100), verdict(verdict="harness_error"))
    assert row_of(text)[-1] == ""


def test_the_page_says_what_the_records_say() -> None:
    """Whoever changes a kernel, or judges it again, makes the tables anew: benchmarks/kernel_report.py says how."""
    program("benchmarks/kernel_records.py")
    report = program("benchmarks/kernel_report.py")
    cases = report.read([DOCS / "records" / "kernels.jsonl"])
    _, _, tables = (DOCS / "kernels.md").read_text().partition(report.MARK)
    assert tables.strip() == report.page(cases, load(str(DOCS / "records" / "h200-virtual.toml"))).strip()
