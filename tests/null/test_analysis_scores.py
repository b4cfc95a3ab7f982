"""Estimators against enumeration, and scores against collections small enough to count by hand."""

import dataclasses
import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verdict_examples import TIMING, example

from pkb.analysis.compare import compare
from pkb.analysis.estimate import bootstrap, first_at_k, mcnemar, share_interval, unbiased_at_k
from pkb.analysis.groups import AXES, group_by
from pkb.analysis.modes import FailureMode
from pkb.analysis.samples import Sample
from pkb.analysis.score import CURVE, fast_curve, fast_share, is_fast, score, share_at
from pkb.problems.registry import default_registry
from pkb.types.document import VerdictDocument
from pkb.types.taxonomy import SYSTEM, Taxonomy
from pkb.types.verdict import Communication, ProblemRef, Verdict


def sample(problem: int, verdict: str, index: int = 0, *, collection: str = "c", **changes: Any) -> Sample:
    asked = {"problem": ProblemRef(problem, "made_up")}  # the examples are of several problems
    return Sample(collection, problem, index, example(Verdict(verdict), **asked | changes).to_dict())


def timed(problem: int, low: float, value: float, high: float, index: int = 0, **changes: Any) -> Sample:
    decision = changes.pop("decision", "faster" if low > 1 else "slower" if high < 1 else "same")
    times = dataclasses.replace(TIMING, speedup=value, speedup_low=low, speedup_high=high, decision=decision)
    collection = changes.pop("collection", "c")
    return sample(problem, "correct", index, collection=collection, timing=times, **changes)


def test_nobody_is_faster_on_a_cpu() -> None:
    """Correct all the same; times of a CPU say nothing about the speed of a kernel, whatever the verdict has them."""
    on_cpu, elsewhere = (timed(1, 2.0, 2.1, 2.2, platform=platform) for platform in ("cpu", "virtual"))
    assert elsewhere.speed is not None
    assert (on_cpu.speed, on_cpu.utilisation, on_cpu.is_correct) == (None, None, True)
    assert VerdictDocument(on_cpu.evaluation or {}).speedup is None


# -- estimators ---------------------------------------------------------------------------------------------------------

counts = st.integers(1, 9).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n), st.integers(1, n)))


@given(counts)
def test_unbiased_agrees_with_enumeration(case: tuple[int, int, int]) -> None:
    hits, tries, k = case
    outcomes = [True] * hits + [False] * (tries - hits)
    draws = list(itertools.combinations(outcomes, k))
    assert unbiased_at_k(hits, tries, k) == pytest.approx(sum(map(any, draws)) / len(draws))


@given(st.integers(1, 60), st.data())
def test_unbiased_is_a_probability_that_rises_with_k(tries: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, tries))
    values = [unbiased_at_k(hits, tries, k) for k in range(1, tries + 5)]
    assert all(0 <= value <= 1 for value in values)
    assert values == sorted(values)
    assert values[0] == pytest.approx(hits / tries)
    assert values[tries - 1] == values[-1] == float(hits > 0)


def test_impossible_counts_are_refused() -> None:
    for hits, tries, k in ((3, 2, 1), (0, 0, 1), (1, 2, 0), (-1, 2, 1)):
        with pytest.raises(ValueError, match="at k"):
            unbiased_at_k(hits, tries, k)


def test_first_k_looks_at_no_later_try() -> None:
    outcomes = [False, False, True]
    assert [first_at_k(outcomes, k) for k in (1, 2, 3, 4)] == [0, 0, 1, 1]


def test_mcnemar_by_hand() -> None:
    assert mcnemar(0, 0) == 1
    assert mcnemar(5, 5) == 1
    assert mcnemar(0, 6) == pytest.approx(2 / 64)
    assert mcnemar(1, 7) == mcnemar(7, 1) == pytest.approx(2 * (1 + 8) / 256)


def test_intervals() -> None:
    values = [1.0] * 30 + [0.0] * 57
    interval = share_interval(values)
    assert interval == share_interval(values)  # seeded
    assert interval is not None
    # A normal approximation of the same: 30/87 +- 1.96 sqrt(p q / n) = .245 to .445
    assert interval.low == pytest.approx(0.245, abs=0.02)
    assert interval.high == pytest.approx(0.445, abs=0.02)
    nothing, everything = share_interval([0.0] * 87), share_interval([1.0] * 87)
    assert nothing is not None
    assert everything is not None
    assert nothing.high == pytest.approx(0.0415, abs=1e-3)  # Clopper and Pearson, 0 of 87
    assert everything.low == pytest.approx(1 - nothing.high)
    assert bootstrap([]) is None


# -- samples of one collection ------------------------------------------------------------------------------------------

outcomes = st.sampled_from(["correct", "wrong", "race", "crash", "unsupported", "harness_error", "rejected", None])
speeds = st.tuples(*[st.floats(0.05, 8)] * 3).map(sorted)


@st.composite
def collections(draw: st.DrawFn) -> list[Sample]:
    samples = []
    for problem in range(1, draw(st.integers(1, 5)) + 1):
        for index in range(draw(st.integers(1, 4))):
            verdict = draw(outcomes)
            if verdict is None:
                samples.append(Sample("c", problem, index, None))
            elif verdict == "correct" and draw(st.booleans()):
                low, value, high = draw(speeds)
                decision = draw(st.sampled_from([None, "unproven"])) if low > 1 else None
                samples.append(timed(problem, low, value, high, index, **({"decision": decision} if decision else {})))
            else:
                untimed: dict[str, Any] = {"timing": None} if verdict == "correct" else {}
                samples.append(sample(problem, verdict, index, **untimed))
    return samples


@settings(max_examples=25, deadline=None)
@given(collections(), st.randoms(use_true_random=False), st.integers(1, 4))
def test_order_of_samples_does_not_matter(samples: list[Sample], source: random.Random, k: int) -> None:
    numbers = {p: [s.index for s in samples if s.problem == p] for p in {s.problem for s in samples}}
    for drawn in numbers.values():
        source.shuffle(drawn)
    moved = [dataclasses.replace(s, index=numbers[s.problem].pop()) for s in samples]
    source.shuffle(moved)
    for p in (0.0, 1.0):
        assert _value(fast_share(samples, p, k=k)) == pytest.approx(_value(fast_share(moved, p, k=k)))


@settings(max_examples=25, deadline=None)
@given(collections())
def test_shares_rise_with_k_and_fall_with_p(samples: list[Sample]) -> None:
    by_k = [_value(share_at(samples, lambda s: s.is_correct, k=k)) for k in (1, 2, 3, 4)]
    assert by_k == sorted(by_k)
    for proven in (True, False):
        curve = fast_curve(samples, proven=proven)
        if curve is not None:
            values = [share.value for share in curve.values()]
            assert values == sorted(values, reverse=True)
            assert all(0 <= value <= 1 for value in values)
            assert values[0] == pytest.approx(by_k[0])


def _value(share: Any) -> float:
    return -1.0 if share is None else share.value


def test_not_judged_samples_are_in_no_denominator() -> None:
    judged = [sample(1, "correct"), sample(2, "wrong"), Sample("c", 3, 0, None)]
    others = [
        sample(1, "harness_error", 1),
        sample(2, "unsupported", 1),
        sample(4, "unsupported"),
        sample(5, "harness_error"),
    ]
    alone, together = score(judged, ks=(1, 2)), score(judged + others, ks=(1, 2))
    assert together.pass_at == alone.pass_at
    assert together.pass_at[1].problems == 3
    assert together.pass_at[1].value == pytest.approx(1 / 3)
    assert together.pass_at[2].short == 3
    assert (together.problems, together.judged_problems, together.not_judged) == (5, 3, 4)
    assert together.modes[FailureMode.NO_ANSWER] == 1
    assert sum(together.verdicts.values()) == sum(together.modes.values()) == together.samples == 7


def test_only_not_judged_gives_no_share() -> None:
    scored = score([sample(1, "unsupported")], ks=(1,))
    assert scored.pass_at == {}
    assert scored.speedup is None


def test_first_k_is_of_judged_samples() -> None:
    samples = [sample(1, "harness_error", 0), sample(1, "correct", 1), sample(1, "wrong", 2)]
    scored = score(samples, ks=(1,))
    assert scored.pass_first[1].value == 1
    assert scored.pass_at[1].value == 0.5


def test_what_counts_as_faster() -> None:
    clear, near = timed(1, 1.5, 2.0, 2.5), timed(1, 0.95, 1.05, 1.1)
    unproven = timed(1, 1.5, 2.0, 2.5, decision="unproven")
    untimed = sample(1, "correct", timing=None)
    rejected = sample(1, "rejected")  # it carries a timing of 2 x
    assert [is_fast(clear, p) for p in (0, 1, 1.5, 2)] == [True, True, False, False]
    assert [is_fast(clear, p, proven=False) for p in (1.5, 2)] == [True, False]
    assert [is_fast(near, p) for p in (0.9, 0.95, 1)] == [True, False, False]
    assert is_fast(near, 1, proven=False)
    assert [is_fast(unproven, p) for p in (0.5, 0.999, 1)] == [True, True, False]
    assert not is_fast(unproven, 1, proven=False)
    assert [is_fast(untimed, p) for p in (0, 0.1)] == [True, False]
    assert rejected.evaluation is not None
    assert rejected.evaluation["timing"] is not None
    assert not is_fast(rejected, 0)
    assert rejected.speed is None


def test_custom_and_library_are_counted_apart() -> None:
    own, library = Communication.CUSTOM, Communication.LIBRARY
    samples = [timed(1, 1.5, 2, 3, communication=own), timed(2, 3, 8, 9, communication=library), sample(3, "wrong")]
    scored = score(samples)
    assert scored.communication == {"custom": 1, "library": 1}
    assert scored.pass_at[1].count == pytest.approx(2)
    assert scored.custom_pass_at[1].count == pytest.approx(1)
    assert scored.custom_pass_at[1].problems == 3
    assert scored.custom_fast_1_at is not None
    assert scored.custom_fast_1_at[1].count == pytest.approx(1)
    assert scored.speedup is not None
    assert scored.custom_speedup is not None
    assert scored.speedup.value == pytest.approx(4)  # sqrt(2 * 8)
    assert scored.custom_speedup.value == pytest.approx(2)


def test_speedup_is_of_the_best_try_and_leaves_unproven_out() -> None:
    samples = [
        timed(1, 0.4, 0.5, 0.6, 0), timed(1, 1.9, 2.0, 2.1, 1), timed(1, 7, 9, 10, 2, decision="unproven"),
        timed(2, 5, 6, 7, decision="unproven"), timed(3, 0.4, 0.5, 0.6),
    ]  # fmt: skip
    scored = score(samples)
    assert scored.speedup is not None
    assert scored.speedup.value == pytest.approx(math.sqrt(2.0 * 0.5))
    assert scored.speedup.problems == 2
    assert scored.unproven == 2


def test_utilisation_is_the_rooflines() -> None:
    def with_utilisation(problem: int, value: float | None) -> Sample:
        document = timed(problem, 1.5, 2, 3).evaluation
        assert document is not None
        roofline = {"candidate_utilisation": value, "reference_utilisation": 0.1}
        return Sample("c", problem, 0, {**document, "timing": {**document["timing"], "roofline": roofline}})

    scored = score(
        [with_utilisation(1, 0.2), with_utilisation(2, 0.3), with_utilisation(3, 0.9), with_utilisation(4, None)]
    )
    assert scored.utilisation is not None
    assert scored.utilisation.value == pytest.approx(0.3)
    assert scored.utilisation.problems == 3
    assert scored.reference_utilisation is not None
    assert scored.reference_utilisation.problems == 4


def test_without_any_time_there_is_no_fast_figure() -> None:
    untimed = [sample(1, "correct", timing=None), sample(2, "wrong")]
    scored = score(untimed)
    assert scored.fast_1_at is None
    assert scored.curve is None
    mixed = score([*untimed, timed(3, 2, 3, 4)])
    assert mixed.untimed == 1
    assert mixed.fast_1_at is not None
    assert mixed.fast_1_at[1].value == pytest.approx(1 / 3)
    nothing_right = score([sample(2, "wrong")])  # known without a clock
    assert nothing_right.curve is not None
    assert set(nothing_right.curve) == set(CURVE)


def test_two_collections_are_not_scored_as_one() -> None:
    with pytest.raises(ValueError, match="one collection"):
        score([sample(1, "correct"), sample(1, "correct", collection="d")])


# -- groups and comparison ----------------------------------------------------------------------------------------------


def test_groups_add_up_on_every_axis() -> None:
    problems = {problem.id: problem for problem in default_registry().all()}
    samples = [sample(number, "correct" if number % 3 else "wrong") for number in problems]
    right = sum(s.is_correct for s in samples)
    for axis in AXES:
        groups = group_by([*samples, sample(999, "wrong")], problems, axis)
        assert sum(group.problems for group in groups) == len(problems) + 1
        assert sum(group.passed.count for group in groups if group.passed) == pytest.approx(right)
        assert groups[-1].name == "unknown problem"
    with pytest.raises(ValueError, match="axis"):
        group_by(samples, problems, "colour")


def test_every_problem_names_its_system_and_every_system_has_a_problem() -> None:
    found = {problem.taxonomy.system for problem in default_registry().all()}
    assert found == set(SYSTEM) - {"other"}
    with pytest.raises(ValueError, match="system"):
        Taxonomy(("other",), "other", ("inference",), ("other",), system="somewhere else")


def answers(first: Sequence[Sample], second: Sequence[Sample], k: int = 1) -> list[str]:
    return [row.answer for row in compare(first, second, k=k).rows]


def test_comparison_per_problem() -> None:
    first = [timed(1, 1.0, 1.1, 1.2), timed(2, 1.0, 1.1, 1.2), timed(3, 1.0, 1.1, 1.2), sample(4, "wrong"),
             timed(5, 1, 1.1, 1.2), sample(6, "crash"), timed(7, 1, 1.1, 1.2), timed(8, 1, 1.1, 1.2)]  # fmt: skip
    second = [timed(1, 1.3, 1.4, 1.5), timed(2, 1.1, 1.4, 1.5), timed(3, 0.5, 0.6, 0.7), timed(4, 0.5, 0.6, 0.7),
              sample(5, "race"), sample(6, "wrong"), sample(7, "unsupported"), timed(9, 1, 1.1, 1.2)]  # fmt: skip
    assert answers(first, second) == [
        "better", "same", "worse", "better", "worse", "same", "not compared", "not compared", "not compared",
    ]  # fmt: skip
    result = compare(first, second)
    assert (result.both, result.only_first, result.only_second, result.neither) == (3, 1, 1, 1)
    assert result.compared == 6
    assert "faster on 1 and slower on 1" in result.summary
    assert "chance explains" in result.summary


def test_speeds_that_cannot_be_compared_are_the_same() -> None:
    first = [timed(1, 1, 1.1, 1.2)]
    assert answers(first, [timed(1, 5, 6, 7)]) == ["better"]
    assert answers(first, [timed(1, 5, 6, 7, platform="node")]) == ["same"]
    assert answers(first, [timed(1, 5, 6, 7, decision="unproven")]) == ["same"]
    assert answers(first, [sample(1, "correct", timing=None)]) == ["same"]


def test_comparison_uses_the_same_number_of_tries() -> None:
    first, second = [sample(1, "wrong")], [sample(1, "wrong", 0), sample(1, "correct", 1)]
    assert answers(first, second) == ["same"]
    assert answers(first, second, k=2) == ["better"]


def test_a_real_difference_is_called_one_and_chance_is_not() -> None:
    numbers = range(1, 21)
    none, all_right = [sample(n, "wrong") for n in numbers], [sample(n, "correct", timing=None) for n in numbers]
    assert "more than chance explains" in compare(none, all_right).summary
    assert "less, by more than chance" in compare(all_right, none).summary
    assert "a difference that chance explains" in compare(none, [*all_right[:2], *none[2:]]).summary
    assert "no problem in common" in compare(none, []).summary


def test_a_reused_output_is_right_as_published_only() -> None:
    """Two problems: one correct, one whose only sample returns memory that its next call overwrites, timed at 2x."""
    times = dataclasses.replace(TIMING, speedup=2.0, speedup_low=1.9, speedup_high=2.1, decision=TIMING.decision.FASTER)
    samples = [timed(1, 1.1, 1.2, 1.3), sample(2, "reused_output", timing=times, platform="virtual")]
    strict = score(samples)
    assert (strict.pass_at[1].value, strict.pass_published_at[1].value, strict.reused) == (0.5, 1.0, 1)
    assert strict.modes == {FailureMode.CORRECT: 1, FailureMode.REUSED_OUTPUT: 1}
    assert strict.speedup is not None
    assert strict.speedup.problems == 1
    lenient = score([dataclasses.replace(each, as_published=True) for each in samples])
    assert (lenient.pass_at[1].value, lenient.pass_published_at[1].value, lenient.reused) == (1.0, 1.0, 1)
    assert lenient.fast_1_at is not None
    assert lenient.fast_1_at[1].value == 1.0
    race = score([timed(1, 1.1, 1.2, 1.3), dataclasses.replace(sample(2, "race"), as_published=True)])
    assert (race.pass_at[1].value, race.pass_published_at[1].value) == (0.5, 0.5)


def test_the_exit_status_of_a_reused_output() -> None:
    assert {v: v.exit_status_as(as_published=False) for v in Verdict} == {v: v.exit_status for v in Verdict}
    changed = {v for v in Verdict if v.exit_status_as(as_published=True) != v.exit_status}
    assert changed == {Verdict.REUSED_OUTPUT}
    assert Verdict.REUSED_OUTPUT.exit_status == 1
