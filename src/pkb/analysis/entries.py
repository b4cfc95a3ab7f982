"""One entry of a results file as a sample, checked at the edge: what scores are made of must be there in the right types.

An entry is a bare verdict, or a sample around one: {"collection", "problem": id, "sample", "step", "cost_usd", "tokens_in",
"tokens_out" (or their sum, "tokens"), "evaluation": verdict, or null where no answer came}. A line of `pkb runs export` is
such a sample in other words.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pkb.analysis.samples import Sample, total
from pkb.types.document_versions import current
from pkb.types.plan import PUBLISHED
from pkb.types.verdict import SCHEMA_VERSION, Decision, Verdict

TIMES = ("speedup", "speedup_low", "speedup_high", "reference_us", "candidate_us")
DECISIONS = tuple(map(str, Decision))
VERDICTS = frozenset(map(str, Verdict))
_STEM = re.compile(r"0*(\d+)_\w+\.py")


class MalformedEntry(ValueError):
    """Why an entry is no verdict."""


class Entry(NamedTuple):
    sample: Sample
    """Its index is -1 where the entry does not say which try it is."""
    identity: tuple[str, ...] | None
    """Entries with the same one are steps of the same try; None for a bare verdict, which is a try of its own."""


def read_entry(document: object, *, collection: str, origin: str = "", label: str = "") -> Entry:
    """`label` wins over the entry's own name of its collection, and that over `collection`."""
    if not isinstance(document, Mapping):
        raise MalformedEntry(f"a {type(document).__name__}, where a verdict is an object")
    if "evaluation" not in document:
        evaluation = checked_evaluation(document)
        return Entry(Sample(label or collection, problem_id(evaluation), -1, evaluation, origin=origin), None)
    said = _plain_sample(document)
    inner = said["evaluation"]
    verdict = None if inner is None else checked_evaluation(inner)
    judged_for = None if verdict is None else problem_id(verdict)
    problem = judged_for if said.get("problem") is None else said["problem"]
    if type(problem) is not int:
        raise MalformedEntry(f"`problem` is {problem!r}, where a sample has the problem's id")
    if judged_for not in (None, problem):
        raise MalformedEntry(f"a sample of problem {problem} with a verdict on problem {judged_for}")
    index = _whole(said, "sample")
    tokens_in, tokens_out = _whole(said, "tokens_in"), _whole(said, "tokens_out")
    sample = Sample(
        collection=label or str(said.get("collection") or collection),
        problem=problem,
        index=-1 if index is None else index,
        evaluation=verdict,
        step=_whole(said, "step"),
        cost_usd=_amount(said, "cost_usd"),
        tokens=total((tokens_in, tokens_out)) if said.get("tokens") is None else _whole(said, "tokens"),
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        origin=origin,
    )
    if said.get("task_key"):
        return Entry(sample, (str(said.get("run_id")), str(said["task_key"])))
    apart = (verdict or {}).get("plan") == PUBLISHED  # the same try, judged by that plan too, is two entries
    return Entry(sample, None if index is None else (sample.collection, str(problem), str(index), str(apart)))


def checked_evaluation(document: object) -> Mapping[str, Any]:
    """The verdict, as this version writes it, if it can be scored."""
    if not isinstance(document, Mapping) or "verdict" not in document:
        raise MalformedEntry("no verdict: it has no field `verdict`")
    if not isinstance(document["verdict"], str) or document["verdict"] not in VERDICTS:
        raise MalformedEntry(f"unknown verdict {document['verdict']!r}")
    schema = document.get("schema", SCHEMA_VERSION)
    if type(schema) is not int or schema > SCHEMA_VERSION:
        raise MalformedEntry(f"schema {schema!r}: this pkb reads up to {SCHEMA_VERSION}")
    problem_id(document)
    if document.get("timing") is not None:
        _check_timing(document["timing"])
    return current(document)


def problem_id(evaluation: Mapping[str, Any]) -> int:
    """`problem.id`, or the number that the candidate's file name begins with (`13_gemm_allreduce_cuda.py`)."""
    problem = evaluation.get("problem")
    if isinstance(problem, Mapping) and type(problem.get("id")) is int:
        return int(problem["id"])
    candidate = evaluation.get("candidate")
    named = _STEM.fullmatch(str(candidate.get("file", ""))) if isinstance(candidate, Mapping) else None
    if named is None:
        raise MalformedEntry("neither `problem.id` nor the candidate's file name says which problem it is")
    return int(named[1])


def _plain_sample(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """A line of `pkb runs export` (run, task, answer) in the words of a sample; any other entry as it is."""
    task = document.get("task")
    if not isinstance(task, Mapping):
        return document
    run, answer = (part if isinstance(part := document.get(name), Mapping) else {} for name in ("run", "answer"))
    return {
        "collection": task.get("collection"),
        "problem": task.get("problem_id"),
        "sample": task.get("sample"),
        "step": document.get("step"),
        "cost_usd": answer.get("cost_usd"),
        "tokens_in": answer.get("tokens_in"),
        "tokens_out": answer.get("tokens_out"),
        "evaluation": document["evaluation"],
        "run_id": run.get("id"),
        "task_key": task.get("key"),
    }


def _check_timing(timing: object) -> None:
    if not isinstance(timing, Mapping):
        raise MalformedEntry("`timing` is no object")
    for name in TIMES:
        if not _is_positive(timing.get(name)):
            raise MalformedEntry(f"`timing.{name}` is {timing.get(name)!r}, where a time or ratio is positive")
    if timing["speedup_low"] > timing["speedup_high"]:
        raise MalformedEntry("`timing.speedup_low` is above `timing.speedup_high`")
    if timing.get("decision") not in DECISIONS:
        raise MalformedEntry(f"`timing.decision` is {timing.get('decision')!r}, not one of {', '.join(DECISIONS)}")
    roofline = timing.get("roofline")
    for name in ("candidate_utilisation", "reference_utilisation"):
        value = roofline.get(name) if isinstance(roofline, Mapping) else None
        if value is not None and value != 0 and not _is_positive(value):
            raise MalformedEntry(f"`timing.roofline.{name}` is {value!r}, where a share is meant")


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _whole(said: Mapping[str, Any], name: str) -> int | None:
    value = said.get(name)
    if value is not None and (type(value) is not int or value < 0):
        raise MalformedEntry(f"`{name}` is {value!r}, where a whole number is meant")
    return value


def _amount(said: Mapping[str, Any], name: str) -> float | None:
    value = said.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or (value != 0 and not _is_positive(value)):
        raise MalformedEntry(f"`{name}` is {value!r}, where an amount is meant")
    return float(value)
