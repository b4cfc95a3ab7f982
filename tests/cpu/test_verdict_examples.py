"""The verdicts that tests and docs show are what the judge says today: two are made again and have the same shape."""

import json
from pathlib import Path

import pytest

from pkb.types.verdict import Verdict
from program_files import program

ROOT = Path(__file__).parents[2]
FIXED = (
    "schema", "verdict", "stage", "problem", "candidate", "platform", "ranks", "size", "dtype", "plan", "paths", "race_kind",
    "hints", "failing_ranks",
)  # fmt: skip
"""Members that do not differ from one evaluation to the next."""


def shape(value: object) -> object:
    """Names of members all the way down; what stands in them is left out."""
    if isinstance(value, dict):
        return {name: shape(part) for name, part in value.items()}
    return [shape(part) for part in value[:1]] if isinstance(value, list) else None


@pytest.mark.parametrize("verdict", [Verdict.WRONG, Verdict.RUNTIME_ERROR])
def test_an_example_is_what_the_judge_says(verdict: Verdict) -> None:
    making = program("tools/verdict_examples.py")
    kept = json.loads((making.FOLDER / f"{verdict}.json").read_text())
    made = making.trimmed(making.made(verdict))
    assert {name: made[name] for name in FIXED} == {name: kept[name] for name in FIXED}
    machine = {"isolation": None, "environment": None}
    assert shape(made | machine) == shape(kept | machine)
    if verdict is Verdict.WRONG:
        assert made["mismatch"]["patterns"] == kept["mismatch"]["patterns"]
    else:
        told = ("kind", "name", "message", "rank", "trace")
        assert [made["failure"][name] for name in told] == [kept["failure"][name] for name in told]


def test_every_verdict_has_its_example() -> None:
    making = program("tools/verdict_examples.py")
    assert {path.stem for path in making.FOLDER.glob("*.json")} == set(Verdict)
    assert set(making.EXAMPLES) == set(Verdict) - {Verdict.CORRECT}
    assert making.trimmed(making.made(Verdict.CORRECT)) == json.loads((making.FOLDER / "correct.json").read_text())
