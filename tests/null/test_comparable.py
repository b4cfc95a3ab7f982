"""Only what answers the same question by the same rules is compared, and what is left out is said with its reason."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from verdict_examples import TIMING, example

from pkb.analysis.compare import compare
from pkb.analysis.samples import Sample
from pkb.analysis.score import score
from pkb.types.stock import Against
from pkb.types.timing import Decision, OtherReading
from pkb.types.verdict import ProblemRef, SuiteRef, Verdict

OTHER = OtherReading("reference", 900.0, 4.0, 3.9, 4.1, Decision.FASTER, 8, 4)
TIMED = replace(
    TIMING, against="baseline", speedup=1.0, speedup_low=0.98, speedup_high=1.02, decision=Decision.SAME, other=OTHER
)
PROBLEM = ProblemRef(1, "allreduce", 2, 3)


def sample(name: str, *, against: Against = "baseline", index: int = 0, **changes: Any) -> Sample:
    judged = example(Verdict.CORRECT, **{"problem": PROBLEM, "timing": TIMED, "platform": "virtual"} | changes)
    document: Mapping[str, Any] = json.loads(judged.to_json())
    return Sample(name, 1, index, document, against=against)


def faster(speedup: float) -> dict[str, Any]:
    own = replace(
        TIMED, speedup=speedup, speedup_low=0.98 * speedup, speedup_high=1.02 * speedup, decision=Decision.FASTER
    )
    return {"timing": own}


def only_row(first: Sample, second: Sample) -> tuple[str, str]:
    (row,) = compare([first], [second]).rows
    return row.answer, row.why


def test_the_same_question_is_compared() -> None:
    assert only_row(sample("a"), sample("b", **faster(2.0))) == ("better", "faster: the intervals do not touch")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"problem": replace(PROBLEM, version=5)}, "problem version 2 and 5"),
        ({"suite": SuiteRef(2, 2)}, "judge 1 and 2"),
        ({"suite": None}, "judge 1 and unversioned"),
        ({"plan": "paper"}, "tolerance the problem's and the original benchmark's"),
    ],
)
def test_another_question_is_not(change: dict[str, Any], why: str) -> None:
    assert only_row(sample("a"), sample("b", **change, **faster(2.0))) == ("not compared", why)
    found = compare([sample("a")], [sample("b", **change)])
    assert "no problem in common that is comparable" in found.summary


def test_another_suite_is_when_nothing_of_this_problem_changed() -> None:
    assert only_row(sample("a"), sample("b", suite=SuiteRef(9, 1), **faster(2.0)))[0] == "better"


def test_speeds_against_another_baseline_are_not() -> None:
    answer, why = only_row(sample("a"), sample("b", problem=replace(PROBLEM, baseline_version=4), **faster(2.0)))
    assert answer == "same"
    assert why.endswith("speeds are not comparable: timed against baseline version 3 and baseline version 4")


def test_both_readings_can_be_scored() -> None:
    """Of one verdict: as fast as the baseline, four times as fast as the reference."""
    baseline, reference = (score([sample("a", against=against)]) for against in ("baseline", "reference"))  # type: ignore[arg-type]
    assert (baseline.against, reference.against) == ("baseline", "reference")
    assert baseline.fast_1_at is not None
    assert reference.fast_1_at is not None
    assert (baseline.fast_1_at[1].value, reference.fast_1_at[1].value) == (0.0, 1.0)
    assert reference.speedup is not None
    assert reference.speedup.value == pytest.approx(4.0)


def test_a_reading_that_was_not_taken_counts_as_not_timed() -> None:
    missing = score([sample("a", against="reference", timing=replace(TIMED, other=None))])
    assert (missing.untimed, missing.fast_1_at) == (1, None)


def test_one_function_is_both_readings() -> None:
    one = {
        "problem": replace(PROBLEM, baseline_version=None),
        "timing": replace(TIMED, against="reference", other=None),
    }
    for against in ("baseline", "reference"):
        assert score([sample("a", against=against, **one)]).untimed == 0  # type: ignore[arg-type]


def test_a_score_says_what_is_mixed_in_it() -> None:
    mixed = score([sample("a"), sample("a", index=1, suite=SuiteRef(2, 2))])
    assert mixed.suites == {"1": 1, "2": 1}
    assert mixed.mixed == ("problem 1: judge 1 and 2",)
