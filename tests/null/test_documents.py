"""Verdicts of older versions are read as this one writes them; real ones are in docs/records."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from verdict_examples import example

from pkb.types.document_versions import current, read_evaluation
from pkb.types.verdict import SCHEMA_VERSION, Verdict

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "verdict.schema.json").read_text())


def old(verdict: Verdict, **changes: Any) -> dict[str, Any]:
    """A verdict as version 1 wrote it."""
    document: dict[str, Any] = json.loads(example(verdict).to_json()) | {"schema": 1}
    if document["mismatch"]:
        for name in ("difference", "patterns", "amount", "argument"):
            del document["mismatch"][name]
    if document["failure"]:
        document["failure"]["kind"] = document["failure"].pop("name") or document["failure"]["kind"]
    return document | changes


def test_every_record_is_read() -> None:
    """All of version 1, made on a GPU."""
    validator = jsonschema.Draft202012Validator(SCHEMA)
    documents = [json.loads(line) for line in (DOCS / "records" / "kernels.jsonl").read_text().splitlines()]
    assert {document["schema"] for document in documents} <= {1, 2}
    for document in documents:
        evaluation = read_evaluation(document)
        assert evaluation.candidate.file == document["candidate"]["file"]
        written = json.loads(evaluation.to_json()) | {"schema": SCHEMA_VERSION}
        validator.validate(written)


@pytest.mark.parametrize("verdict", sorted(set(Verdict) - {Verdict.UNSUPPORTED, Verdict.REUSED_OUTPUT}))
def test_what_version_1_said_in_words_has_its_kind(verdict: Verdict) -> None:
    """But for what a platform lacks, which version 1 kept as any exception, and what it had no word for."""
    assert current(old(verdict)) == json.loads(example(verdict).to_json())


@pytest.mark.parametrize(
    ("pattern", "patterns"),
    [
        ("", []),
        ("rank 1 only; NaN in 25.0% of the elements; confined to rows 0-15", ["some_ranks", "nan", "some_rows"]),
        ("stale data: the differing elements are those of another call (number 7)", ["stale_data"]),
        ("a few elements only", ["few_elements"]),
        ("this rank's own x came back", ["own_input"]),
    ],
)
def test_patterns_of_version_1(pattern: str, patterns: list[str]) -> None:
    document = old(Verdict.WRONG)
    document["mismatch"]["pattern"] = pattern
    assert current(document)["mismatch"]["patterns"] == patterns


@pytest.mark.parametrize(
    ("verdict", "was", "kind", "name"),
    [
        (Verdict.REJECTED, "harness_access", "static_rule", "harness_access"),
        (Verdict.REJECTED, "malformed report", "malformed_report", ""),
        (Verdict.CRASH, "memory limit", "memory_limit", ""),
        (Verdict.RUNTIME_ERROR, "ValueError", "exception", "ValueError"),
        (Verdict.LOAD_ERROR, "MissingSolution", "no_solution", "MissingSolution"),
    ],
)
def test_failures_of_version_1(verdict: Verdict, was: str, kind: str, name: str) -> None:
    document = old(verdict, failure={"kind": was, "message": "m", "rank": None, "trace": ""})
    assert current(document)["failure"] == {"kind": kind, "name": name, "message": "m", "rank": None, "trace": ""}
