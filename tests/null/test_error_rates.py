"""The labelled set, and the arithmetic of the judge's own error rates."""

import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("labelled_set", "error_rates"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("error_rates")


@pytest.mark.parametrize(
    ("hits", "tries", "low", "high"),
    [
        (0, 10, 0.0, 0.3085),  # 1 - 0.025 ** (1 / 10)
        (10, 10, 0.6915, 1.0),
        (1, 20, 0.0013, 0.2487),
        (5, 10, 0.1871, 0.8129),
    ],
)
def test_clopper_pearson(rates: ModuleType, hits: int, tries: int, low: float, high: float) -> None:
    assert rates.binomial_interval(hits, tries) == pytest.approx((low, high), abs=2e-4)


def test_the_set_is_large_and_every_mutant_is_a_program_of_its_own(rates: ModuleType) -> None:
    everything = rates.labelled_set()
    assert len(everything) >= 300
    assert len({one.name for one in everything}) == len(everything)
    mutants = [one for one in everything if one.kind == "mutant"]
    assert len(mutants) >= 150
    judged = {(one.text, *sorted(one.case.items())) for one in everything}
    assert len(judged) == len(everything), "two candidates with the same text"
    for one in mutants:
        ast.parse(one.text)
        assert not one.right
    assert sum(one.right for one in everything) >= 25
    assert all(one.expected == {"correct"} for one in everything if one.right)
    assert all(("correct" in one.expected) == (one.kind == "beyond") for one in everything if not one.right)


def test_the_order_mixes_kinds_and_is_always_the_same(rates: ModuleType) -> None:
    everything = rates.labelled_set()
    first = rates.planned(everything, only=None)
    assert first == rates.planned(everything, only=None)
    assert len({one.kind for one in first[:40]}) >= 4
    assert {one.kind for one in rates.planned(everything, only="mistake")} == {"mistake"}


def test_who_is_found_by_chance_is_named(rates: ModuleType) -> None:
    """And none of them is a candidate whose times are judged, which has no label here."""
    chance, there = rates.by_chance(), {one.name for one in rates.labelled_set(slow=True)}
    assert "mistakes/gives_up_at_the_end_cuda" in chance
    assert chance.keys() <= there
    made, kept = rates.page([], {}), (BENCHMARKS.parent / "docs" / "error-rates.md").read_text()
    for name, why in chance.items():
        assert f"- {name}: {why}." in made
        assert f"- {name}: {why}." in kept


def row(rates: ModuleType, verdict: str, *, right: bool, expected: str, run: int = 0, kind: str = "mutant") -> object:
    return rates.Judged("x", kind, "k", "cpu", right, tuple(expected.split("|")), verdict, "", 1.0, run)


def test_what_counts_as_an_error(rates: ModuleType) -> None:
    rows = [
        row(rates, "correct", right=False, expected="race"),
        row(rates, "race", right=True, expected="correct"),
        row(rates, "harness_error", right=True, expected="correct"),
        row(rates, "reused_output", right=False, expected="race"),
        row(rates, "unsupported", right=False, expected="unsupported"),
        row(rates, "correct", right=True, expected="correct"),
    ]
    text = rates.page(rows, {"cheats/a": "its times are what is judged"})
    assert "False accepts (wrong, and called correct): 1 of 3 " in text
    assert "False rejects (right, and not called correct): 1 of 2 " in text
    assert "where that was not expected): 1 of 6" in text
    assert "its times are what is judged: cheats/a" in text


def test_what_is_wrong_elsewhere_counts_on_neither_side(rates: ModuleType) -> None:
    rows = [
        row(rates, "wrong", right=False, expected="wrong"),
        row(rates, "correct", right=False, expected="correct", kind="beyond"),
        row(rates, "race", right=False, expected="correct", kind="beyond"),
    ]
    text = rates.page(rows, {}, beyond={"x": "ranks=2, where nothing is wrong"})
    assert "False accepts (wrong, and called correct): 0 of 1 " in text
    assert "| x | 2 ranks, where nothing is wrong | correct |" in text
    assert "| x | 2 ranks, where nothing is wrong | race |" in text
    assert "| beyond |" not in text


def test_two_verdicts_of_one_candidate_are_shown(rates: ModuleType) -> None:
    """In a section of their own, which is replaced and is kept when the rest of the page is made again."""
    rows = [
        row(rates, verdict, right=False, expected="race", run=run) for run, verdict in enumerate(("race", "wrong"), 1)
    ]
    section = rates.again(rows, who="abc")
    assert "| x | 2 | race 1, wrong 1 |" in section
    bare = rates.page([row(rates, "race", right=False, expected="race")], {})
    page = rates.with_section(bare, section)
    assert page.count(rates.AGAIN) == 1
    assert page.index(rates.AGAIN) < page.index(rates.AFTER)
    assert rates.section_of(page) == section
    assert rates.with_section(page, "") == bare
    assert rates.with_section(rates.with_section(page, section), section) == page


def test_verdicts_of_two_judges_are_not_mixed(
    rates: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor is anything judged again that has been judged by this one."""
    judged: list[str] = []

    def judge(one: object, folder: Path, platform: str, *, run: int, who: str) -> object:
        judged.append(one.name)  # type: ignore[attr-defined]
        key = rates.key_of(one, platform)
        return rates.Judged(one.name, one.kind, key, platform, one.right, ("race",), "race", "", 1.0, run, who)  # type: ignore[attr-defined]

    monkeypatch.setattr(rates, "judge", judge)
    monkeypatch.setattr(sys, "argv", ["x", "--out", str(tmp_path), "--limit", "3", "--only", "mutant"])
    assert rates.main() == rates.main() == 0
    assert len(set(judged)) == len(judged) == 6
    monkeypatch.setattr(rates, "this_judge", lambda: "another")
    assert rates.main() == 2
    assert "verdicts of another judge" in capsys.readouterr().out
    assert len(judged) == 6
    assert len((tmp_path / "verdicts.jsonl").read_text().splitlines()) == 6


def test_the_page_says_who_judged_and_how_many(rates: ModuleType) -> None:
    text = rates.page([row(rates, "race", right=False, expected="race")], {}, in_all=300, who="abc")
    assert "Judged: 1 of the 300 candidates of the set, on cpu, by the judge `abc`" in text
