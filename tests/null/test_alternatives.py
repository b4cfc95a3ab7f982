"""What was tried as a baseline has code, a time at `real`, and is not faster than what was taken."""

import json
from pathlib import Path
from typing import Any

import pytest

from pkb.problems import default_registry
from pkb.problems.base import Problem
from pkb.problems.registry import load_folder

ROOT = Path(__file__).resolve().parents[2]
PROBLEMS = default_registry().all()
TRIED = [(problem, index) for problem in PROBLEMS for index in range(len(problem.tried))]
NOISE = 0.9
"""Between starts of a machine times differ by a tenth (docs/references.md)."""


def rows(name: str) -> dict[int, dict[str, Any]]:
    """By id, the last row at `real`."""
    path = ROOT / "docs" / "records" / "references" / name
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["id"]: row for row in found if row["size"] == "real" and (row["time_us"] or row["error"])}


def id_of(problem: Problem, index: int) -> int:
    return 100 * problem.id + index + 1


def test_each_has_code_and_each_code_is_named() -> None:
    files = {int(path.name[1:].partition("_")[0]) for path in (ROOT / "benchmarks" / "alternatives").glob("p*.py")}
    assert files == {id_of(*one) for one in TRIED}


def test_each_is_the_same_question() -> None:
    for alternative in load_folder(ROOT / "benchmarks" / "alternatives"):
        problem = default_registry().get(alternative.id // 100)
        assert alternative.baseline not in (problem.baseline, problem.reference)
        assert (alternative.inputs, alternative.reference, alternative.compare, alternative.sizes) == (
            problem.inputs, problem.reference, problem.compare, problem.sizes,
        ), alternative.stem  # fmt: skip


@pytest.mark.parametrize(("problem", "index"), TRIED, ids=[f"p{id_of(*one)}" for one in TRIED])
def test_its_time_is_the_measured_one_and_no_better(problem: Problem, index: int) -> None:
    row = rows("alternatives.jsonl").get(id_of(problem, index))
    one = problem.tried[index]
    if row is None:
        assert one.us is None
        assert not one.refused
        pytest.skip("not timed yet")
    if row["error"]:
        assert one.refused
        assert one.us is None
        return
    assert one.us == pytest.approx(row["time_us"], rel=0.01)
    taken = [name for name in ("references.jsonl", "baselines.jsonl") if problem.id in rows(name)]
    assert one.us > NOISE * min(rows(name)[problem.id]["time_us"] for name in taken), "it would be the better baseline"
