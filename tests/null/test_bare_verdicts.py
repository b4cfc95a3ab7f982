"""Records of files that are not ours hold no word of theirs, and say the same about them as whole verdicts do."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from race_examples import proof

from pkb.analysis.bare_verdicts import ACCESS, MEMORY, MOMENT, PLAIN, SHA256, bare, vocabulary
from pkb.analysis.entries import read_entry
from pkb.analysis.lost import loss_of
from pkb.analysis.modes import WORDS, FailureMode, failure_mode
from pkb.problems.registry import default_registry
from pkb.types.document_versions import read_evaluation

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "tests" / "data" / "verdicts").glob("*.json"))
RECORDS = sorted((ROOT / "docs" / "records").glob("*frontier*.jsonl"))
NAMES = {problem.name for problem in default_registry().all()} | {"no_reference"}  # of an example
CASE = re.compile(r"size \w+, \d+ ranks(, trial \d+)?(, call \d+)?")
CHECK = re.compile(r"\d+ calls at \w+( with \d+ ranks)?|races: [\w, ]+|not timed|odd size not checked")
FILE = re.compile(r"\d{2,3}_(\w+)_(\w+)\.py")
OUR_MESSAGES = {"shape", "timed out after", "'int' object has no attribute 'data_ptr'"}
OUR_TYPES = {"CompileError", "ValueError", "AttributeError", "TimeoutError"}
SECRET = "secretive_kernel_name"


def texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield f"{path}/key", name
            yield from texts(inner, f"{path}/{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner, path)
    elif isinstance(value, str):
        yield path, value


def foreign(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Strings that are in no list of ours."""
    found = []
    for path, text in texts(record):
        file = FILE.fullmatch(text)
        fine = (
            (path.endswith("/key") and re.fullmatch(r"[a-zA-Z_0-9]{1,40}", text))
            or text in vocabulary()
            or text in WORDS.values()
            or (path.endswith("/problem/name") and text in NAMES)
            or (path.endswith("/file") and file and file[1] in NAMES)
            or (path.endswith("/sha256") and SHA256.fullmatch(text))
            or (path.endswith("/started_at") and MOMENT.fullmatch(text))
            or (path.endswith(("/hardware", "/collection")) and PLAIN.fullmatch(text))
            or ("/environment/" in path and PLAIN.fullmatch(text))
            or (path.endswith("/case") and CASE.fullmatch(text))
            or (path.endswith("/output") and re.fullmatch(r"the result|result \d+|argument changed in place", text))
            or (path.endswith("/checks") and CHECK.fullmatch(text))
            or (path.endswith("/memory") and MEMORY.fullmatch(text))
            or (path.endswith("/what") and ACCESS.fullmatch(text))
            or (path.endswith("/failure/message") and text in OUR_MESSAGES)
            or (path.endswith("/failure/name") and text in OUR_TYPES)
        )
        if not fine:
            found.append((path, text))
    return found


def poisoned(value: Any) -> Any:
    """With a foreign word in every text that is long enough to hold one, but in those that the machine says."""
    if isinstance(value, dict):
        return {
            name: inner if name in ("hardware", "environment") else poisoned(inner) for name, inner in value.items()
        }
    if isinstance(value, list):
        return [poisoned(inner) for inner in value]
    return f"{value} {SECRET}" if isinstance(value, str) and " " in value else value


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_a_bare_verdict_says_the_same_in_our_words(path: Path) -> None:
    whole = json.loads(path.read_text())
    reduced = json.loads(json.dumps(bare(whole), allow_nan=False))
    assert foreign(reduced) == []
    assert failure_mode(reduced) is failure_mode(whole)
    if whole["verdict"] != "correct":
        assert loss_of(reduced) is loss_of(whole)
    assert read_entry(reduced, collection="c").sample.problem == whole["problem"]["id"]
    read_evaluation(reduced)
    assert len(json.dumps(reduced)) < 4000


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_foreign_words_do_not_get_through(path: Path) -> None:
    whole = json.loads(path.read_text()) | {"output_tail": SECRET, "hints": [SECRET]}
    whole["candidate"] |= {"file": f"1_{SECRET}_cuda.py", "backend": SECRET}
    assert SECRET not in json.dumps(bare(poisoned(whole)))


@pytest.mark.parametrize(
    "mode", [mode for mode in FailureMode if mode.is_published and mode is not FailureMode.CORRECT]
)
def test_every_mode_of_an_exception_survives(mode: FailureMode) -> None:
    examples = {
        FailureMode.COMPILE: ("SyntaxError", SECRET),
        FailureMode.SHAPE: ("RuntimeError", f"shape of {SECRET}"),
        FailureMode.NAME: ("NameError", SECRET),
        FailureMode.RUNTIME: (SECRET, SECRET),
        FailureMode.DEADLOCK: ("RuntimeError", f"{SECRET} timed out after 3 s"),
    }
    if mode not in examples:
        return
    name, message = examples[mode]
    whole = json.loads((ROOT / "tests" / "data" / "verdicts" / "runtime_error.json").read_text())
    whole["failure"] |= {"kind": "exception", "name": name, "message": message, "trace": SECRET}
    assert failure_mode(whole) is mode
    reduced = bare(whole)
    assert failure_mode(reduced) is mode
    assert SECRET not in json.dumps(reduced)


def test_a_race_keeps_its_lines_and_loses_its_names() -> None:
    whole = json.loads((ROOT / "tests" / "data" / "verdicts" / "race.json").read_text())
    reduced = bare(whole | {"race_proof": poisoned(json.loads(json.dumps(asdict(proof()))))})
    assert foreign(reduced) == []
    (finding,) = reduced["race_proof"]["findings"]
    assert (finding["kind"], finding["first"]["line"], finding["second"]["line"]) == (
        "relaxed_where_release_acquire_is_needed", 6, 12,
    )  # fmt: skip
    kept = read_evaluation(json.loads(json.dumps(reduced))).race_proof
    assert kept is not None
    assert [one.first.write for one in kept.findings] == [True]


@pytest.mark.parametrize("path", RECORDS, ids=[path.stem for path in RECORDS])
def test_the_records_hold_no_free_text(path: Path) -> None:
    for line in path.read_text().splitlines():
        record = json.loads(line)
        assert set(record) <= {"collection", "problem", "sample", "evaluation", "beside", "provisional"}
        assert type(record.get("beside", 1)) is int
        assert record.get("provisional", True) is True
        assert foreign(record) == []
