"""The tables of docs/kernels.md: which verdict of a case counts, and what is said of times that an earlier version took."""

import hashlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pkb.roofline.hardware import load
from program_files import program

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def report() -> Any:
    return program("benchmarks/kernel_report.py")


def verdict(version: str, *, us: float | None = None, verdict: str = "correct") -> dict[str, Any]:
    timing = {
        "reference_us": 200.0, "candidate_us": us, "speedup": 200 / us, "speedup_low": 190 / us,
        "speedup_high": 210 / us, "decision": "faster",
    } if us else None  # fmt: skip
    return {
        "problem": {"id": 1, "name": "allreduce", "version": 1}, "size": "paper", "ranks": 8,
        "candidate": {"file": "a.py", "sha256": hashlib.sha256(version.encode()).hexdigest()},
        "dtype": "bf16", "verdict": verdict, "communication": "custom", "timing": timing,
    }  # fmt: skip


def table(report: ModuleType, folder: Path, *verdicts: dict[str, Any], present: str) -> str:
    """What is said of these verdicts while the kernel's file reads `present`."""
    vars(report)["SOLUTIONS"] = folder
    report.present_version.cache_clear()
    (folder / "a.py").write_text(present)
    path = folder / "verdicts.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in verdicts))
    text = str(report.page(report.read([path]), load("h200x8")))
    path.write_text("".join(json.dumps(one) + "\n" for one in report.kept([path])))
    assert report.page(report.read([path]), load("h200x8")) == text, "what is kept says the same"
    return text


def test_the_last_verdict_counts(report: ModuleType, tmp_path: Path) -> None:
    text = table(report, tmp_path, verdict("a", us=100), verdict("b", us=50), present="b")
    assert "| 200 | 50.0 | 4.00 (3.80 to 4.20) |" in text
    assert "1 judged, 1 of them timed in this version. The interval lies above 1 for 1 of those" in text
    assert "1 of them `correct` with communication `custom`; 0 of kernels that have changed since." in text


def test_a_verdict_without_times_keeps_those_of_the_same_version(report: ModuleType, tmp_path: Path) -> None:
    text = table(report, tmp_path, verdict("a", us=100), verdict("a"), present="a")
    assert "| 200 | 100 | 2.00 (1.90 to 2.10) |" in text


def test_times_of_an_earlier_version_say_so_and_do_not_count(report: ModuleType, tmp_path: Path) -> None:
    for later in ([verdict("b")], [verdict("b"), verdict("b")]):
        text = table(report, tmp_path, verdict("a", us=100), *later, present="b")
        assert "| 200 | 100 | 2.00 (1.90 to 2.10), an earlier version |" in text
        assert "1 judged, 0 of them timed in this version. The interval lies above 1 for 0 of those" in text
        assert "0 of kernels that have changed since" in text


def test_a_kernel_that_was_changed_and_not_judged_says_so(report: ModuleType, tmp_path: Path) -> None:
    text = table(report, tmp_path, verdict("a", us=100), present="b")
    assert "2.00 (1.90 to 2.10), an earlier version |" in text
    assert "1 judged, 0 of them timed in this version" in text
    assert "1 of kernels that have changed since" in text
    assert "paper (an earlier version)" in text


def test_good_times_do_not_hide_a_later_failure(report: ModuleType, tmp_path: Path) -> None:
    for later in ([], [verdict("a")]):
        text = table(report, tmp_path, verdict("a", us=100), verdict("a", verdict="deadlock"), *later, present="a")
        assert "| 200 |" not in text
        assert ("**paper: deadlock, custom**" in text) == (not later)


def test_the_page_says_what_the_records_say(report: ModuleType) -> None:
    """Whoever changes a kernel, or judges it again, makes the tables anew: benchmarks/kernel_report.py says how."""
    rows = report.read([DOCS / "records" / "kernels.jsonl"])
    _, _, tables = (DOCS / "kernels.md").read_text().partition(report.MARK)
    assert tables.strip() == report.page(rows, load(str(DOCS / "records" / "h200-virtual.toml"))).strip()
