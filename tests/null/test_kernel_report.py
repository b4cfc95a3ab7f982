"""The tables of docs/kernels.md: which verdict of a case counts, and what is said of times that an earlier version took."""

import hashlib
import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pkb.judge.timing.looks import looks
from pkb.judge.timing.statistics import Paired, estimate
from pkb.kit.fingerprint import fingerprint
from pkb.problems import get
from pkb.roofline.hardware import load
from program_files import program

DOCS = Path(__file__).parents[2] / "docs"


JUDGE = 20


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
        "suite": {"version": 1, "judge": judge} if judge else None, "environment": {"kit": fingerprint()},
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
        assert "1 of 1 rows have times, and 1 of these are `faster` than the baseline" in text
        assert "1 of these have a verdict with races looked for too" in text


def test_races_are_never_taken_from_times(report: ModuleType, tmp_path: Path) -> None:
    text = text_of(report, tmp_path, verdict(us=100, times_only=True))
    assert row_of(text)[-1] == "races not looked for"
    assert "1 of 1 rows have times, and 1 of these are `faster`" in text
    assert "0 of these have a verdict" in text
    assert "paper: not judged" in text
    called_standard = verdict(us=100, times_only=True) | {"plan": "standard"}
    assert row_of(text_of(report, tmp_path, called_standard))[-1] == "races not looked for"


def test_what_moves_the_data_is_never_taken_from_times(report: ModuleType, tmp_path: Path) -> None:
    unobserved = verdict(us=100, times_only=True) | {"communication": "unknown"}
    assert row_of(text_of(report, tmp_path, unobserved, verdict()))[-1] == ""
    assert row_of(text_of(report, tmp_path, unobserved))[-1] == "races not looked for"
    whole = verdict(us=100) | {"communication": "unknown"}
    assert row_of(text_of(report, tmp_path, whole))[-1] == "correct, communication unknown"
    library = unobserved | {"communication": "library"}
    assert row_of(text_of(report, tmp_path, verdict(us=100), library))[-1] == "correct, communication library"


def test_a_verdict_of_a_judge_that_judges_alike_counts_and_its_times_do_not(
    report: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["kernel_records"], "OTHER_TIMES_ALONE", {JUDGE})
    before, again = verdict(us=90, judge=JUDGE - 1), verdict(us=100, times_only=True, at="2026-01-03")
    text = text_of(report, tmp_path, before, again)
    assert row_of(text)[0] == "100"
    assert row_of(text)[-1] == ""
    assert "1 of these have a verdict with races looked for too (by judge version 19; these judges differ" in text
    assert "`custom`, races looked for, by judge version 19 in their present text: 1." in text
    judged_again = verdict(at="2026-01-03")
    assert row_of(text_of(report, tmp_path, before, judged_again))[-1] == "not timed since 2026-01-02 (other judge)"
    older = verdict(us=90, judge=JUDGE - 2)
    assert row_of(text_of(report, tmp_path, older, again))[-1] == "not judged since 2026-01-02 (other judge)"


def said(speedup: float, ends: float, decision: str) -> dict[str, Any]:
    low, high = speedup / ends, speedup * ends
    return {"speedup": speedup, "speedup_low": low, "speedup_high": high, "decision": decision}


@pytest.mark.parametrize(
    ("judge", "speedup", "decision", "expected"),
    [
        (5, 1.04, "faster", "same"),  # calls of 100 us: starts may differ by 5.5 %
        (5, 1.04, "unproven", "same"),
        (5, 1.10, "faster", "faster"),
        (5, 1.10, "unproven", "unproven"),
        (5, 0.96, "slower", "same"),
        (5, 0.92, "slower", "slower"),
        (4, 1.04, "faster", "faster"),  # of other samples: as that judge said
        (6, 1.04, "faster", "faster"),  # has the term already
    ],
)
def test_times_of_judge_5_are_concluded_as_judge_6_does(
    judge: int, speedup: float, decision: str, expected: str
) -> None:
    one = verdict(us=100, judge=judge)
    one["timing"] |= said(speedup, 1.02, decision) | {"reference_us": 100 * speedup}
    assert program("benchmarks/kernel_records.py").concluded(one)["decision"] == expected


@pytest.mark.parametrize(("window_low", "expected"), [(0.98, "faster"), (0.2, "unproven")])
def test_the_second_reading_is_concluded_anew_with_the_first(window_low: float, expected: str) -> None:
    """It had been confirmed by the first's decision, which is no longer `faster`."""
    one = verdict(us=100, judge=5, other={"against": "reference", "us": 300.0} | said(3.0, 1.03, "faster"))
    one["timing"] |= said(1.04, 1.02, "faster") | {"reference_us": 104.0, "window_speedup_low": window_low}
    other = program("benchmarks/kernel_records.py").concluded(one)["other"]
    assert (other["decision"], other["us"]) == (expected, 300.0)
    assert other["speedup_high"] == pytest.approx(3.0 * math.exp(math.hypot(math.log(1.03), 0.0554)), rel=1e-3)


def test_what_is_concluded_anew_is_what_the_judge_makes_of_the_samples() -> None:
    records = program("benchmarks/kernel_records.py")
    cases = records.read([DOCS / "records" / "kernels.jsonl"])
    rows = [row for row in records.kept(cases) if row["timing"] and records.judge_of(row) == 5]
    assert len(rows) == 56
    planned = [looks(rounds) for rounds in (1, 2, 4, 8)]
    errors = {
        one.as_the_last(some[n:end]).error for some in planned for n, one in enumerate(some, 1) for end in (n, None)
    }
    for row in rows[::9]:
        timing, kinds = row["timing"], row["timing"]["sample_kinds"]
        weights = dict(get(row["problem"]["id"]).kinds) if kinds else {"": 1.0}
        samples = Paired(timing["reference_samples_us"], timing["candidate_samples_us"], kinds, weights)
        wanted = [records.concluded(row)[name] for name in ("speedup", "speedup_low", "speedup_high")]
        assert any(estimate(samples, error).ratio == pytest.approx(wanted) for error in errors), row["problem"]


def test_times_of_judge_5_are_present_beside_those_of_judge_6(report: ModuleType, tmp_path: Path) -> None:
    before, now = verdict(us=100, judge=5), verdict(us=100, judge=6, problem=2)
    text = text_of(report, tmp_path, before, now)
    assert row_of(text)[-1] == row_of(text, "02_allgather")[-1] == ""
    assert (
        "By judge version 6 (intervals and decisions on samples of judge version 5 by judge version 6's rule)" in text
    )
    assert "2 of 2 rows have times, and 2 of these are `faster` than the baseline; 2 of these have a verdict" in text
    assert "on samples of" not in text_of(report, tmp_path, now)


@pytest.mark.parametrize(
    ("older", "words"),
    [
        (verdict(us=100, judge=JUDGE - 1), "2026-01-02 (other judge)"),
        (verdict(us=100, judge=0), "2026-01-02 (other judge)"),
        (verdict("b", us=100), "2026-01-02 (other kernel)"),
        (verdict(us=100) | {"environment": {"kit": "another"}}, "2026-01-02 (other kit)"),
        (verdict(us=100) | {"environment": {}}, "2026-01-02 (other kit)"),
        (verdict(us=100) | {"problem": {"id": 1, "name": "allreduce", "version": 1}}, "2026-01-02 (other problem)"),
    ],
)
def test_what_is_older_says_so_and_does_not_count(
    report: ModuleType, tmp_path: Path, older: dict[str, Any], words: str
) -> None:
    text = text_of(report, tmp_path, older, verdict(at="2026-01-03"))
    assert row_of(text)[0] == "100"
    assert row_of(text)[-1] == f"not timed since {words}"
    assert "0 of 1 rows have times, and 0 of these are `faster`" in text
    text = text_of(report, tmp_path, older | {"timing": None}, verdict(us=50, times_only=True, at="2026-01-03"))
    assert row_of(text)[-1] == f"not judged since {words}"
    assert f"(paper; {words})" in text
    assert "1 of 1 rows have times, and 1 of these are `faster` than the baseline; 0 of these have a verdict" in text


def test_the_baseline_decides_and_the_reference_stands_beside_it(report: ModuleType, tmp_path: Path) -> None:
    other = {
        "against": "reference", "us": 900.0, "speedup": 9.0, "speedup_low": 8.0, "speedup_high": 10.0, "decision": "faster",
    }  # fmt: skip
    one = verdict(us=199, problem=17, other=other, decision="same")
    text = text_of(report, tmp_path, one)
    row = row_of(text, "17_rope_allgather")
    assert row[2] == "1.01 (0.95 to 1.06), same"
    assert row[4:6] == ["900", "9.00 (8.00 to 10.00), faster"]
    assert "1 of 1 rows have times, and 0 of these are `faster` than the baseline" in text
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
        assert "0 of 1 rows have times" in text
    text = text_of(report, tmp_path, verdict(us=100), failed, verdict())
    assert (row_of(text)[0], row_of(text)[-1]) == ("100", ""), "taken back by a verdict of the whole plan"
    assert "deadlock" not in text


def test_a_failure_deletes_no_times_from_what_is_kept(report: ModuleType, tmp_path: Path) -> None:
    """They would be taken again on a machine that is rented, though the failure may be the next text's."""
    text_of(report, tmp_path, verdict(us=100, at="2026-01-01"), verdict("b", verdict="deadlock"))
    text = text_of(report, tmp_path, *report.kept(report.read([tmp_path / "verdicts.jsonl"])), verdict(at="2026-01-03"))
    assert row_of(text)[0] == "100"


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


def test_the_readme_says_what_the_records_say() -> None:
    records = program("benchmarks/kernel_records.py")
    report = program("benchmarks/kernel_report.py")
    cases = report.read([DOCS / "records" / "kernels.jsonl"])
    judge = report.newest_judge(cases)
    counts = [report.counted(cases, *at, report.newest_judge(cases)) for at in report.TIMED]
    present = [known for found in counts for known in found.present]
    by: dict[str, list[Any]] = {}
    for known in present:
        by.setdefault(report.against_baseline(known).decision, []).append(known)
    text = " ".join((DOCS.parent / "README.md").read_text().split())
    assert f"{len(by['faster'])} of the {len(present)} cases that were timed" in text
    again = [
        known for known in cases.values() if known.judged and not records.earlier(known.judged, judge, times=False)
    ]
    assert f"{len(again)} of {len(cases)} cases have been judged there with the kit as it is" in text
    assert all(known.judged is not None and known.failed is None for known in cases.values())
    assert [report.name_of(known) for known in by["unproven"]] == ["07"], "the gain of one reduce-scatter is not proven"
    # What was timed in one start, and needs several, is not in the counts; a loss among it may not go unsaid.
    alone = [
        known
        for case, known in cases.items()
        if (case.size, case.ranks) in report.TIMED and known.timed and records.lacks_starts(known.timed, judge)
    ]
    found = [report.against_baseline(known).decision for known in alone]
    assert (
        f"{('No', 'One', 'Two', 'Three', 'Four', 'Five', 'Six', 'Seven')[found.count('faster')]} more were faster"
        in text
    )
    slower = [known for known in present + alone if report.against_baseline(known).decision == "slower"]
    for known in slower + by.get("same", []):
        assert f"({report.against_baseline(known).speedup:.2f}x" in text, known.timed["problem"]
    (attention,) = slower
    kinds = report.concluded(attention.timed)["speedup_by_kind"]
    causal, full = (f"{kinds[kind]['speedup']:.2g}x" for kind in ("causal", "full"))
    assert f": causal calls {causal}, others {full})" in text
