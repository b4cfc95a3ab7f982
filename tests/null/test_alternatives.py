"""What was tried as a baseline has code, a time at `real`, and is not faster than what was taken."""

import json
from pathlib import Path
from typing import Any

import pytest

from pkb.problems import default_registry
from pkb.problems.base import Problem
from pkb.problems.registry import load_folder
from program_files import program

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


def test_one_that_is_faster_is_said_to_be(tmp_path: Path) -> None:
    row = {"ranks": 8, "dtype": "bf16", "size": "real", "argument_bytes": 0, "error": ""}
    references = program("benchmarks/references.py")
    alternative = row | {"id": 901, "function": "baseline", "time_us": 950.0}
    assert not references.gain(tmp_path, alternative)
    (tmp_path / "references.jsonl").write_text(json.dumps(row | {"id": 9, "function": "reference", "time_us": 2004.0}))
    assert references.gain(tmp_path, alternative).startswith("FASTER")
    (tmp_path / "baselines.jsonl").write_text(json.dumps(row | {"id": 9, "function": "baseline", "time_us": 1000.0}))
    assert references.gain(tmp_path, alternative).startswith("about as fast")
    assert references.gain(tmp_path, alternative | {"time_us": 1980.0}).startswith("slower")


def test_each_is_timed_with_as_many_ranks_as_its_problem() -> None:
    most_ranks = program("benchmarks/references.py").most_ranks
    alternatives = load_folder(ROOT / "benchmarks" / "alternatives")
    assert {one.id // 100 for one in alternatives if most_ranks(one, "real") == 4} == {43, 44, 76}
    assert {most_ranks(one, "real") for one in alternatives} == {4, 8}


def test_a_row_counts_for_the_baseline_that_was_timed_and_no_other(tmp_path: Path) -> None:
    row = {"ranks": 8, "dtype": "bf16", "function": "baseline", "argument_bytes": 0, "error": ""}
    present = default_registry().get(18).baseline_version
    written = [
        row | {"id": 18, "size": "real", "version": present},
        row | {"id": 18, "size": "paper", "version": present - 1},
        row | {"id": 18, "size": "decode"},  # from before rows said it: of the first
        row | {"id": 7199, "size": "real", "version": 1},
        row | {"id": 9, "size": "paper"},
    ]
    log = tmp_path / "baselines.jsonl"
    log.write_text("".join(json.dumps(one) + "\n" for one in written))
    assert set(program("benchmarks/references.py").read(log)) == {(18, "real", 8), (9, "paper", 8)}
