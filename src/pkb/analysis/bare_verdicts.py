"""Verdicts without a word of anybody else's: for records of files that are not ours to quote.

What a candidate's file, its compiler or its exceptions say never gets through. Numbers stay; words stay only where they are
of our own vocabulary. Where a reader looks a text up (the mode of an exception, the case of a mismatch) it is said in our own,
so that scores, modes and losses of a bare verdict are those of the whole one.
"""

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

from pkb.analysis.modes import FailureMode, failure_mode
from pkb.types.difference import DifferenceKind, Pattern
from pkb.types.failure import FailureKind
from pkb.types.plan import PLANS
from pkb.types.race import RaceSchedule
from pkb.types.timing import Decision
from pkb.types.verdict import Communication, RaceKind, Stage, Standing, Verdict

BACKENDS = frozenset({"torch", "cuda", "triton", "cpp", "parallelkittens"})
PATHS = frozenset({"copy_engine", "sm_load_store", "tma", "nvls", "library", "none", "unknown"})
PLAIN = re.compile(r"[\w .,+()-]{0,60}")
"""Names of GPUs, drivers and versions, which the machine says and not the candidate."""
SHA256 = re.compile(r"[0-9a-f]{64}")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.+]+")
MEMORY = re.compile(r"symmetric allocation \d+ of rank \d+|shared memory|global memory of rank \d+")
ACCESS = re.compile(
    r"(?:plain|volatile) (?:load|store)|(?:st|ld|atom|red|multimem|cp)\.[a-z0-9.:_]{1,60}|atomic[A-Za-z_]{1,20}"
)
"""What the analyser and the instruction set say of where two accesses met and what they are."""
SCHEDULES = get_args(RaceSchedule)
KERNEL, UNDECIDED = "of the candidate", "left out here"
VERSIONS = ("torch", "CUDA", "NCCL", "driver", "python", "triton")
_CASE = re.compile(r"size (?:tiny|paper|real|odd), \d+ ranks(?:, trial \d+)?(?:, call \d+)?")
_CHECKS = re.compile(r"\d+ calls at \w+(?: with \d+ ranks)?|races: [\w, ]+|not timed|odd size not checked")
_OUTPUT = re.compile(r"the result|result \d+|argument changed in place")
OUR_WORDS: Mapping[FailureMode, tuple[str, str]] = {
    FailureMode.COMPILE: ("CompileError", ""),
    FailureMode.SHAPE: ("ValueError", "shape"),
    FailureMode.NAME: ("AttributeError", ""),
    FailureMode.DEADLOCK: ("TimeoutError", "timed out after"),
    FailureMode.TORCH_VERSION: ("AttributeError", "'int' object has no attribute 'data_ptr'"),
}
"""An exception's type and message that are sorted into the same mode; of any other, none."""


@cache
def vocabulary() -> frozenset[str]:
    enums = (Verdict, Stage, FailureKind, DifferenceKind, Pattern, RaceKind, Decision, Communication, Standing)
    words = {str(member) for enum in enums for member in enum}
    return frozenset(words | set(PLANS) | BACKENDS | PATHS) | {
        "cpu", "virtual", "node", "tiny", "paper", "real", "odd", "bf16", "fp16", "fp32", "fp64", "compute", "hbm", "link",
        "datasheet", "measured", "latency", "reference", "baseline", "", *SCHEDULES, UNDECIDED, KERNEL,
    }  # fmt: skip


def bare(document: Mapping[str, Any]) -> dict[str, Any]:
    """A verdict's JSON, reduced."""
    mode = failure_mode(document)
    problem, candidate = document["problem"], document["candidate"]
    backend = candidate.get("backend") if candidate.get("backend") in BACKENDS else ""
    kept = {
        "schema": document.get("schema", 1),
        "detail": mode.words,
        "problem": {"id": int(problem["id"]), "name": problem["name"], "version": problem.get("version", 1)}
        | ({"baseline_version": _number(problem["baseline_version"])} if problem.get("baseline_version") else {}),
        "candidate": {
            "file": f"{int(problem['id']):02d}_{problem['name']}_{backend or 'other'}.py",
            "sha256": _matching(SHA256, candidate.get("sha256")),
            "backend": backend,
        },
        "suite": {
            name: _number(value)
            for name, value in (document.get("suite") or {}).items()
            if name in ("version", "judge")
        },
        "hardware": _matching(PLAIN, document.get("hardware")),
        "paths": [path for path in document.get("paths") or () if path in PATHS],
        "failing_ranks": _numbers(document.get("failing_ranks") or []),
        "mismatch": _mismatch(document.get("mismatch")),
        "rank_states": [
            {"rank": int(state["rank"]), "state": _word(state.get("state")), "where": "", "stack": []}
            for state in document.get("rank_states") or ()
        ],
        "failure": _failure(document.get("failure"), mode),
        "race_proof": _race_proof(document.get("race_proof")),
        "timing": _timing(document.get("timing")),
        "checks": [found[0] for check in document.get("checks") or () if (found := _CHECKS.match(check))],
        "stage_seconds": _numbers(document.get("stage_seconds") or {}),
        "environment": {
            name: said for name in VERSIONS if (said := _matching(PLAIN, (document.get("environment") or {}).get(name)))
        },
        "started_at": _matching(MOMENT, document.get("started_at")),
    }
    words = {name: _word(document.get(name)) for name in ("verdict", "stage", "platform", "size", "dtype", "plan")}
    others = {name: _word(document.get(name)) for name in ("communication", "race_kind")}
    return {
        name: value
        for name, value in (words | {"ranks": int(document.get("ranks") or 0)} | others | kept).items()
        if value not in (None, "", [], {})
    }


def _mismatch(said: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not said:
        return None
    return {
        "case": _found(_CASE, said.get("case")),
        "ranks": _numbers(said.get("ranks") or []),
        "rank": int(said.get("rank") or 0),
        "output": _found(_OUTPUT, said.get("output")),
        "what": "",
        "difference": _word(said.get("difference")),
        "patterns": [word for pattern in said.get("patterns") or () if (word := _word(pattern))],
        "amount": _number(said.get("amount")),
        "error_ratio": _number(said.get("error_ratio")),
        "differing_fraction": _number(said.get("differing_fraction")),
    }


def _race_proof(said: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What was executed, and of each race its kind and where it is: lines and numbers."""
    if not said:
        return None
    numbers = {name: _number(said.get(name)) or 0 for name in ("traces", "calls", "ranks", "events")}
    return numbers | {
        "size": _word(said.get("size")),
        "seeds": _numbers(said.get("seeds") or []),
        "schedule": said.get("schedule") if said.get("schedule") in SCHEDULES else "both",
        "findings": [_race_finding(finding) for finding in said.get("findings") or ()],
        "own_flags": said.get("own_flags") is True,
        "why_not": UNDECIDED if said.get("why_not") else "",
    }


def _race_finding(said: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {name: _number(said.get(name)) or 0 for name in ("count", "offset", "bytes")}
    sides = {side: _race_access(said[side]) for side in ("first", "second")}
    missing = {"text": "", "first": None, "second": None}
    words = {"kind": _word(said.get("kind")), "memory": _matching(MEMORY, said.get("memory"))}
    return words | numbers | sides | {"missing": missing}


def _race_access(said: Mapping[str, Any]) -> dict[str, Any]:
    numbers = ("rank", "block", "thread", "call", "line", "candidate_line")
    return {name: _number(said.get(name)) or 0 for name in numbers} | {
        "write": said.get("write") is True,
        "kernel": KERNEL if said.get("kernel") else "",
        "what": _matching(ACCESS, said.get("what")),
        "file": "",
    }


def _failure(said: Mapping[str, Any] | None, mode: FailureMode) -> dict[str, Any] | None:
    if not said:
        return None
    kind = _word(said.get("kind"))
    name, message = OUR_WORDS.get(mode, ("", "")) if kind == FailureKind.EXCEPTION else ("", "")
    return {"kind": kind, "message": message, "rank": _number(said.get("rank")), "name": name}


def _timing(said: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """All of it but the single samples and the words."""
    if not said:
        return None
    kept = _reduced(said)
    assert isinstance(kept, dict)
    if isinstance(said.get("roofline"), Mapping):
        kept["roofline"]["hardware"] = _matching(PLAIN, said["roofline"].get("hardware"))
    return kept | {"clock_agreement": ""}


def _reduced(value: object) -> object:
    if isinstance(value, Mapping):
        return {
            str(name): _reduced(inner)
            for name, inner in value.items()
            if re.fullmatch(r"\w{1,40}", str(name)) and not isinstance(inner, list | tuple)
        }
    return _word(value) if isinstance(value, str) else _number(value)


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and value in vocabulary() else None if value is None else ""


def _number(value: object) -> float | int | None:
    """To six digits: nobody reads more, and records are kept for ever."""
    if isinstance(value, bool | int):
        return value
    if not isinstance(value, float) or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")


def _numbers(value: object) -> Any:
    if isinstance(value, Mapping):
        return {name: _number(inner) for name, inner in value.items() if name in vocabulary()}
    return [_number(inner) for inner in value] if isinstance(value, list | tuple) else None


def _matching(pattern: re.Pattern[str], value: object) -> str:
    return value if isinstance(value, str) and pattern.fullmatch(value) else ""


def _found(pattern: re.Pattern[str], value: object) -> str:
    found = pattern.match(value) if isinstance(value, str) else None
    return found[0] if found else ""
