"""The tables of docs/kernels.md: which verdict of a case counts, and what is said of times that an earlier version took."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pkb.roofline.hardware import load


@pytest.fixture(scope="module")
def report() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "kernel_report.py"
    spec = importlib.util.spec_from_file_location("kernel_report", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def verdict(version: str, *, us: float | None = None, verdict: str = "correct") -> dict[str, Any]:
    timing = {
        "reference_us": 200.0, "candidate_us": us, "speedup": 200 / us, "speedup_low": 190 / us,
        "speedup_high": 210 / us, "decision": "faster",
    } if us else None  # fmt: skip
    return {
        "problem": {"id": 1, "name": "allreduce", "version": 1}, "candidate": {"sha256": version}, "size": "paper",
        "ranks": 8, "dtype": "bf16", "verdict": verdict, "communication": "custom", "timing": timing,
    }  # fmt: skip


def table(report: ModuleType, folder: Path, *verdicts: dict[str, Any]) -> str:
    path = folder / "verdicts.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in verdicts))
    return str(report.page(report.read([path]), load("h200x8")))


def test_the_last_verdict_counts(report: ModuleType, tmp_path: Path) -> None:
    text = table(report, tmp_path, verdict("a", us=100), verdict("b", us=50))
    assert "| 200 | 50.0 | 4.00 (3.80 to 4.20) |" in text
    assert "1 judged, 1 of them timed in this version. The interval lies above 1 for 1 of those" in text


def test_a_verdict_without_times_keeps_those_of_the_same_version(report: ModuleType, tmp_path: Path) -> None:
    text = table(report, tmp_path, verdict("a", us=100), verdict("a"))
    assert "| 200 | 100 | 2.00 (1.90 to 2.10) |" in text


def test_times_of_an_earlier_version_say_so_and_do_not_count(report: ModuleType, tmp_path: Path) -> None:
    for later in ([verdict("b")], [verdict("b"), verdict("b")]):
        text = table(report, tmp_path, verdict("a", us=100), *later)
        assert "| 200 | 100 | 2.00 (1.90 to 2.10), an earlier version |" in text
        assert "1 judged, 0 of them timed in this version. The interval lies above 1 for 0 of those" in text


def test_good_times_do_not_hide_a_later_failure(report: ModuleType, tmp_path: Path) -> None:
    text = table(report, tmp_path, verdict("a", us=100), verdict("a", verdict="deadlock"))
    assert "deadlock, communication custom" in text
    assert "1 cases, 0 of them" in text
    assert "**paper: deadlock, custom**" in text
