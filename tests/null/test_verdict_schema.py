"""The schema in docs/ describes what the judge writes: it accepts every verdict and refuses what is no verdict."""

import copy
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from verdict_examples import FOLDER, PROFILE, example

from pkb.types import verdict as types
from pkb.types.difference import DifferenceKind, Pattern
from pkb.types.document_versions import current, read_evaluation
from pkb.types.timing import KindSpeedup, OtherReading
from pkb.types.verdict import CandidateRef, Evaluation, ProblemRef, Verdict

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "verdict.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def document(verdict: Verdict, **changes: Any) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(example(verdict, **changes).to_json())
    return loaded


def test_schema_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("verdict", Verdict)
def test_every_verdict_validates(verdict: Verdict) -> None:
    VALIDATOR.validate(document(verdict))


def test_a_profile_validates() -> None:
    VALIDATOR.validate(document(Verdict.CORRECT, profile=PROFILE))


@pytest.mark.parametrize("verdict", Verdict)
def test_a_document_is_read_back_as_it_was_written(verdict: Verdict) -> None:
    kept = json.loads((FOLDER / f"{verdict}.json").read_text())
    assert json.loads(read_evaluation(kept).to_json()) == kept
    assert current(kept) == kept


def test_a_profile_is_read_back() -> None:
    evaluation = example(Verdict.CORRECT, profile=PROFILE)
    assert read_evaluation(json.loads(evaluation.to_json())) == evaluation


def test_a_document_without_what_it_must_have_is_refused() -> None:
    kept = document(Verdict.WRONG)
    del kept["candidate"]["file"]
    with pytest.raises(ValueError, match="a CandidateRef without file"):
        read_evaluation(kept)


def test_defaults_validate() -> None:
    """The barest evaluation the judge can make is a document too."""
    bare = Evaluation(
        verdict=Verdict.UNSUPPORTED, stage=types.Stage.START, detail="", problem=ProblemRef(1, "allreduce"),
        candidate=CandidateRef("x.py", "0" * 64, "torch"), platform="cpu", hardware="",
        ranks=1, size="tiny", dtype="fp32", plan="quick",
    )  # fmt: skip
    VALIDATOR.validate(json.loads(bare.to_json()))


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        (None, Evaluation),
        ("mismatch", types.Mismatch),
        ("rank_state", types.RankState),
        ("failure", types.Failure),
        ("timing", types.Timing),
        ("kind_speedup", KindSpeedup),
        ("other_reading", OtherReading),
        ("suite", types.SuiteRef),
        ("roofline", types.Roofline),
        ("problem", types.ProblemRef),
        ("candidate", types.CandidateRef),
    ],
)
def test_schema_names_exactly_the_fields_of_the_dataclass(name: str | None, type_: type) -> None:
    """A field added to the dataclass and forgotten here would make every document invalid; one left here, a lie."""
    part = SCHEMA if name is None else SCHEMA["$defs"].get(name) or SCHEMA["properties"][name]
    fields = {field.name for field in dataclasses.fields(type_)}
    assert set(part["properties"]) == fields
    assert set(part["required"]) == fields
    assert part["additionalProperties"] is False


def test_enums_are_those_of_the_code() -> None:
    properties = SCHEMA["properties"]
    assert set(properties["verdict"]["enum"]) == set(Verdict)
    assert set(properties["stage"]["enum"]) == set(types.Stage)
    assert set(properties["communication"]["enum"]) == set(types.Communication)
    assert set(properties["race_kind"]["enum"]) == {None, *types.RaceKind}
    parts = SCHEMA["$defs"]
    assert set(parts["mismatch"]["properties"]["difference"]["enum"]) == set(DifferenceKind)
    assert set(parts["mismatch"]["properties"]["patterns"]["items"]["enum"]) == set(Pattern)
    assert set(parts["failure"]["properties"]["kind"]["enum"]) == set(types.FailureKind)
    assert set(parts["timing"]["properties"]["decision"]["enum"]) == set(types.Decision)
    assert properties["schema"]["const"] == types.SCHEMA_VERSION


def _without(*keys: str) -> Callable[[dict[str, Any]], None]:
    def change(doc: dict[str, Any]) -> None:
        for key in keys[:-1]:
            doc = doc[key]
        del doc[keys[-1]]

    return change


def _with(value: Any, *keys: str | int) -> Callable[[dict[str, Any]], None]:
    def change(doc: Any) -> None:
        for key in keys[:-1]:
            doc = doc[key]
        doc[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("verdict", "change"),
    [
        (Verdict.CORRECT, _without("verdict")),
        (Verdict.CORRECT, _without("hints")),
        (Verdict.CORRECT, _without("timing", "speedup_low")),
        (Verdict.CORRECT, _with("fine", "verdict")),
        (Verdict.CORRECT, _with(1.5, "surprise")),
        (Verdict.CORRECT, _with(2.0, "timing", "speedup_guess")),
        (Verdict.CORRECT, _with("4", "ranks")),
        (Verdict.CORRECT, _with(0, "ranks")),
        (Verdict.CORRECT, _with(1, "schema")),
        (Verdict.CORRECT, _with("a GPU", "platform")),
        (Verdict.CORRECT, _with("quicker", "timing", "decision")),
        (Verdict.CORRECT, _with([["812.5"]], "timing", "reference_samples_us")),
        (Verdict.CORRECT, _without("timing", "roofline")),
        (Verdict.CORRECT, _with("luck", "timing", "roofline", "binds")),
        (Verdict.CORRECT, _with(-0.1, "timing", "roofline", "candidate_utilisation")),
        (Verdict.CORRECT, _with({"name": "gemm_allreduce"}, "problem")),
        (Verdict.CORRECT, _with("x.py", "candidate", "path")),
        (Verdict.CORRECT, _without("candidate", "file")),
        (Verdict.CORRECT, _with({"lunch": 1.0}, "stage_seconds")),
        (Verdict.WRONG, _with(None, "mismatch")),
        (Verdict.WRONG, _with([["rows 0-15"]], "mismatch", "regions")),
        (Verdict.WRONG, _with(1.5, "mismatch", "differing_fraction")),
        (Verdict.WRONG, _with(json.loads(example(Verdict.CORRECT).to_json())["timing"], "timing")),
        (Verdict.WRONG, _with(["looks odd"], "mismatch", "patterns")),
        (Verdict.RACE, _with(None, "race_kind")),
        (Verdict.RACE, _with("buffer reuse", "race_kind")),
        (Verdict.DEADLOCK, _with([], "rank_states")),
        (Verdict.DEADLOCK, _with("asleep", "rank_states", 0, "state")),
        (Verdict.CRASH, _with(None, "failure", "kind")),
        (Verdict.CRASH, _with("SIGSEGV", "failure", "kind")),
    ],
)
def test_what_is_no_verdict_is_refused(verdict: Verdict, change: Callable[[dict[str, Any]], None]) -> None:
    good = document(verdict)
    bad = copy.deepcopy(good)
    change(bad)
    assert bad != good
    VALIDATOR.validate(good)
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(bad)


def test_example_in_the_docs_is_the_one_that_was_made() -> None:
    text = (Path(__file__).parents[2] / "docs" / "verdicts.md").read_text()
    block = text.split("```json\n")[1].split("```")[0]
    assert block == (FOLDER / "wrong.json").read_text()


def test_docs_explain_every_verdict_with_its_exit_status() -> None:
    lines = (Path(__file__).parents[2] / "docs" / "verdicts.md").read_text().splitlines()
    rows = {line.split("`")[1]: line for line in lines if line.startswith("| `")}
    for verdict in Verdict:
        assert rows[verdict].split("|")[2].strip().split()[0] == str(verdict.exit_status)
