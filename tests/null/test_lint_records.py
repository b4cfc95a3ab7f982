"""What lint found is kept case by case, and docs/lint.md is made of it."""

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import lint_table  # noqa: E402


def row(null: str = "zeros", margin: float | str = 50.0, *, round: int = 0, **more: Any) -> dict[str, Any]:
    about = {
        "problem_id": 1, "name": "allreduce", "size": "tiny", "ranks": 2, "dtype": "bf16", "null_candidate": null,
        "passed": False, "margin": margin, "honest_ratio": 0.25, "note": "", "tolerated": False, "must_pass": False,
        "versions": "4, baseline 0", "round": round,
    }  # fmt: skip
    return about | more


def test_a_case_keeps_the_nearest_of_all_secrets() -> None:
    rows = [
        row(margin=50.0), row(margin=12.3456, round=1), row("no_communication", "inf", note="raises IndexError"),
        row("int8_communication", 0.4, tolerated=True), row("zeros", 2.0, ranks=4), row("baseline", 0.0, must_pass=True),
    ]  # fmt: skip
    two, four = lint_table.folded(rows, 7)
    assert two["margins"] == {"zeros": 12.3, "no_communication": "inf"}
    assert (two["secrets"], two["tried"], two["passed"], two["suite"]) == (2, 3, 0, 7)
    assert (two["honest"], two["gap"], two["int8"], two["silent"]) == (0.25, 49.4, 0.4, "raises IndexError")
    assert (four["ranks"], four["margins"]) == (4, {"zeros": 2.0})


def test_other_secrets_add_to_what_is_known_of_a_case() -> None:
    before = lint_table.folded([row("zeros", 4.0), row("no_communication", 9.0)], 6)
    again = lint_table.folded([row("zeros", 5.0, honest_ratio=0.4), row("no_communication", 3.0, passed=True)], 7)
    (record,) = records = lint_table.merged(before, again)
    assert lint_table.merged(records, again) == records
    assert record["margins"] == {"zeros": 4.0, "no_communication": 3.0}
    assert (record["suite"], record["passed"], record["honest"], record["gap"]) == (7, 1, 0.4, 12.0)
    changed = lint_table.folded([row("zeros", 8.0, versions="9, baseline 0")], 8)
    assert lint_table.merged(records, changed) == changed, "what was known is of another problem"


def test_one_case_leaves_the_others_as_they_were() -> None:
    before = lint_table.folded([row("no_communication"), row("no_communication", ranks=4)], 6)
    again = lint_table.folded([row("no_communication", 0.5, passed=True)], 7)
    records = lint_table.merged(before, again)
    assert lint_table.merged(records, again) == records
    assert [(r["ranks"], r["suite"], r["passed"]) for r in records] == [(2, 7, 1), (4, 6, 0)]
    assert "2 null candidates in 2 cases; 1 pass. The nearest (no_communication in problem 1, tiny, 2 ranks, bf16)" in (
        lint_table.summary(records)
    )
    assert "| 01_allreduce | 2 | no_communication | tiny, 2 ranks, bf16 | 0.5 | 0.5 |" in lint_table.table(records)


def test_a_problem_that_changed_since_is_named() -> None:
    records = lint_table.folded([row("no_communication", versions="1, baseline 0")], 3)
    assert lint_table.outdated(records) == [1]
    assert "not linted as they are now: 1." in lint_table.summary(records)


@pytest.mark.skipif(not lint_table.RECORDS.exists(), reason="a package without docs")
def test_the_page_is_made_of_the_records() -> None:
    text, records = lint_table.PAGE.read_text(), lint_table.read(lint_table.RECORDS)
    assert text == lint_table.page(text, records), "run benchmarks/lint_table.py"
    assert not any(record["passed"] for record in records)
