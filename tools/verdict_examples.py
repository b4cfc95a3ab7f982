"""Makes the verdicts that tests and docs show, from real evaluations: `python tools/verdict_examples.py [VERDICT ...]`.

One document a verdict, into tests/data/verdicts: candidates of the demo and of tests/adversaries on the cpu platform, and for
`correct`, whose times and limits need a GPU, a record of docs/records/kernels.jsonl. What differs from machine to machine and
bears nothing out (folders, seconds, most samples) is cut. The example in docs/verdicts.md is the one called `wrong`.
"""

import json
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pkb.judge.session import evaluate
from pkb.types.case import Case
from pkb.types.document_versions import read_evaluation
from pkb.types.job import Job
from pkb.types.plan import PLANS, Plan
from pkb.types.verdict import Evaluation, Verdict

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "data" / "verdicts"
PAGE = ROOT / "docs" / "verdicts.md"
ADVERSARIES = ROOT / "tests" / "adversaries"
RECORDS = ROOT / "docs" / "records" / "kernels.jsonl"
RECORD = (13, 8, "paper")
"""Problem, ranks and size of the record."""
TIMED = replace(PLANS["quick"], odd_trials=0, race_calls=0, timing_rounds=5, calls_per_round=12, warmup_calls=4)
KEPT_SAMPLES = 3
LINE = 100
NO_REFERENCE = '''"""A problem whose reference fails: what a judge says that cannot judge."""


def inputs(draw):
    return {"tensor": draw.normal("tensor", (16,))}


def solution(tensor):
    raise OSError("no space left on the device")
'''


@dataclass(frozen=True)
class Example:
    candidate: Path
    ranks: int = 2
    plan: Plan | None = None
    """In place of `quick`."""
    own_problem: str = ""
    """Source of a problem of its own; else it is for problem 1."""


EXAMPLES: Mapping[Verdict, Example] = {
    Verdict.WRONG: Example(
        ROOT / "src" / "pkb" / "cli" / "demo_candidates" / "1_allreduce_wrong_on_one_rank.py", ranks=4
    ),
    Verdict.RACE: Example(ROOT / "src" / "pkb" / "cli" / "demo_candidates" / "1_allreduce_race.py", ranks=4),
    Verdict.REUSED_OUTPUT: Example(ADVERSARIES / "mistakes" / "returned_static_output.py"),
    Verdict.DEADLOCK: Example(ROOT / "src" / "pkb" / "cli" / "demo_candidates" / "1_allreduce_deadlock.py", ranks=4),
    Verdict.COMPILE_ERROR: Example(ADVERSARIES / "faults" / "cpp_does_not_compile.py"),
    Verdict.LOAD_ERROR: Example(ADVERSARIES / "faults" / "import_error.py"),
    Verdict.RUNTIME_ERROR: Example(ADVERSARIES / "faults" / "exception_on_one_rank.py"),
    Verdict.CRASH: Example(ADVERSARIES / "faults" / "segfault.py"),
    Verdict.REJECTED: Example(ADVERSARIES / "cheats" / "times_rewritten_in_the_report.py", plan=TIMED),
    Verdict.UNSUPPORTED: Example(ADVERSARIES / "faults" / "needs_a_gpu.py"),
    Verdict.HARNESS_ERROR: Example(
        ROOT / "src" / "pkb" / "cli" / "demo_candidates" / "1_allreduce_symmetric.py", own_problem=NO_REFERENCE
    ),
}


def judged(chosen: Example) -> Evaluation:
    case = Case("1", "cpu", chosen.ranks, "tiny", "bf16", "quick")
    job = Job(chosen.candidate, case, call_limit_s=10, custom_plan=chosen.plan)
    if not chosen.own_problem:
        return evaluate(job)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "p901_no_reference.py").write_text(chosen.own_problem)
        return evaluate(replace(job, case=replace(case, problem="901"), problems_folder=Path(folder)))


def recorded() -> Evaluation:
    documents = (json.loads(line) for line in RECORDS.read_text().splitlines())
    return next(
        read_evaluation(found)
        for found in documents
        if (found["problem"]["id"], found["ranks"], found["size"]) == RECORD and found["timing"]
    )


def made(verdict: Verdict) -> Evaluation:
    evaluation = judged(EXAMPLES[verdict]) if verdict in EXAMPLES else recorded()
    if evaluation.verdict is not verdict:
        raise SystemExit(f"expected {verdict}, got {evaluation.verdict}: {evaluation.detail}")
    return evaluation


def trimmed(evaluation: Evaluation) -> dict[str, Any]:
    """The document as tests keep it."""
    text = evaluation.to_json().replace(f"{ROOT}/", "")
    document: dict[str, Any] = json.loads(re.sub(rf"{tempfile.gettempdir()}/[^/\"]+/", "", text))
    document["environment"] = {k: v for k, v in document["environment"].items() if not k.startswith("start of")}
    document["stage_seconds"] = {k: round(v, 1) for k, v in document["stage_seconds"].items()}
    if timing := document["timing"]:
        for name in ("reference_samples_us", "candidate_samples_us"):
            timing[name] = [calls[:KEPT_SAMPLES] for calls in timing[name][:KEPT_SAMPLES]]
        for name in ("reference_walls_us", "candidate_walls_us", "empty_walls_us"):
            timing[name] = timing[name][:KEPT_SAMPLES]
    return document


def laid_out(value: Any, indent: int = 0) -> str:
    """JSON with a line for whatever fits into one."""
    text = json.dumps(value)
    if len(text) + indent <= LINE or not isinstance(value, dict | list) or not value:
        return text
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    inner = [
        " " * (indent + 2) + (f"{json.dumps(key)}: " if isinstance(value, dict) else "") + laid_out(part, indent + 2)
        for key, part in pairs
    ]
    ends = "{}" if isinstance(value, dict) else "[]"
    return ends[0] + "\n" + ",\n".join(inner) + "\n" + " " * indent + ends[1]


def main(wanted: list[str]) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for verdict in map(Verdict, wanted or Verdict):
        document = trimmed(made(verdict))
        text = laid_out(document) + "\n"
        (FOLDER / f"{verdict}.json").write_text(text)
        print(f"{verdict}: {document['detail']}")
        if verdict is Verdict.WRONG:
            before, rest = PAGE.read_text().split("```json\n", 1)
            PAGE.write_text(f"{before}```json\n{text}```{rest.split('```', 1)[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
