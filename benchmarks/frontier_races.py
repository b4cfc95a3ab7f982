"""Looks for races in trees of candidates that others have published: three recorded traces of each file, on platform cpu.

    python benchmarks/frontier_races.py ParallelKernelBench/solutions_cuda_* --out out/races [--whole DIR] [--budget 540]
    python benchmarks/frontier_races.py --table out/races/*.jsonl --keep docs/records/cpu-frontier-races.jsonl

Each file is judged twice, 4 ranks at size tiny, with the switch on. `published`: even inputs and one call, which is what the
published protocol looks at (but by our tolerances), then provoked calls and the traces on such inputs. `quick`: uneven inputs,
the odd size, provoked calls, the traces. A race is seen by the detector alone where everything before the traces was passed.
Files that could not be built or were refused in docs/records/frontier-cpu are left out, and those that raised, crashed or
hung there are judged by `published` only: they end before anything is recorded.

Every verdict is appended at once, in numbers and words of our own, and not reached again by a second start. `--whole` keeps
the whole verdicts in a folder outside of the repository, for whoever reads the sources beside them.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from frontier import RECORDS, parts_of, planned, sha_of
from frontier_counts import read_records
from frontier_passes import keep, known_in

from pkb.analysis.bare_verdicts import bare
from pkb.judge.session import evaluate
from pkb.store import CandidateFile, TaskSpec
from pkb.types.case import AUTO, Case
from pkb.types.job import Job
from pkb.types.plan import PLANS
from pkb.types.race import PROVEN
from pkb.types.verdict import Evaluation

TRACES = 3
QUICK, PUBLISHED = PLANS["quick"], PLANS["published"]
PLANS_HERE = {
    # By our tolerances: 1e-2 in 16 bits is exceeded by rounding in one call of some, and a provoked one would be called a race.
    "published": replace(QUICK, trials=PUBLISHED.trials, odd_trials=0, as_published=True, race_traces=TRACES),
    "quick": replace(QUICK, race_traces=TRACES),
}
OLDER = RECORDS / "frontier-cpu"
NOTHING_RUNS = ("compile_error", "rejected", "unsupported")
ENDS_EARLY = ("runtime_error", "crash", "deadlock", "load_error")
BEGIN, END = "<!-- races of published kernels -->\n", "<!-- end of races of published kernels -->"
KINDS = {kind.value for kind in PROVEN}
UNDECIDED = "not decided: a trace could not be analysed"
ALONE, BOTH = "a race, and everything else was passed", "a race, and calls were provoked into wrong results as well"
EXPLAINED, NOT_PROVEN = "a race, in a file that is wrong", "no race, but calls were provoked into wrong results"
CLEAN, EARLIER = "no race", "no trace: it ended earlier"
Record = Mapping[str, Any]


def wanted(plan: str, older: str | None) -> bool:
    return older not in NOTHING_RUNS and not (plan == "quick" and older in ENDS_EARLY)


def judged(task: TaskSpec, file: CandidateFile, call_limit_s: float) -> Evaluation:
    job = Job(Path(file.origin), task.case, custom_plan=PLANS_HERE[task.case.plan], call_limit_s=call_limit_s)
    return evaluate(job)


def run(options: argparse.Namespace) -> int:
    os.environ["PKB_NVLS"] = "1"
    began = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    older = {
        record["evaluation"]["candidate"]["sha256"]: record["evaluation"]["verdict"]
        for path in OLDER.glob("frontier-*-standard.jsonl")
        for record in read_records(path)
    }
    like = Case("", "cpu", 4, "tiny", AUTO)
    work = planned(parts_of(options.plans.split(","), options.trees), like, known_in([options.out]))
    only = {int(number) for number in options.only.split(",") if number}
    todo = [
        (task, work.files[key])
        for key, task in work.tasks.items()
        if wanted(task.case.plan, older.get(sha_of(work.files[key]))) and (not only or task.problem_id in only)
    ]
    print(f"{len(todo)} verdicts to reach", file=sys.stderr)
    for number, (task, file) in enumerate(todo):
        if options.budget is not None and time.monotonic() - began > options.budget:
            print(f"{len(todo) - number} left", file=sys.stderr)
            return 3
        evaluation = judged(task, file, options.call_limit)
        record = {"collection": task.collection, "problem": task.problem_id, "sample": task.sample}
        document = json.loads(evaluation.to_json())
        keep(options.out, record | {"evaluation": bare(document)})
        if options.whole:
            options.whole.mkdir(parents=True, exist_ok=True)
            name = f"{task.collection.replace(' ', '-')}-{task.problem_id:02d}-{task.sample}-{task.case.plan}.json"
            (options.whole / name).write_text(json.dumps(document, indent=1))
        kinds = (
            sorted({finding.kind.value for finding in evaluation.race_proof.findings}) if evaluation.race_proof else []
        )
        print(
            f"[{time.monotonic() - began:6.1f} s] {number + 1}/{len(todo)} {task.collection}, {task.case.plan}, "
            f"problem {task.problem_id}: {evaluation.verdict} {evaluation.race_kind or ''} {' '.join(kinds)}",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    return 0


def seen_in(record: Record) -> tuple[bool, bool, bool]:
    """Whether calls were provoked into a wrong result, whether a trace holds a race, and whether all before the traces was
    passed."""
    said = record["evaluation"]
    proof = said.get("race_proof") or {}
    provoked = said["verdict"] == "race" and said.get("race_kind") not in KINDS
    passed = said["verdict"] in ("correct", "reused_output") or (said["verdict"] == "race" and not provoked)
    return provoked, bool(proof.get("findings")), passed


def class_of(records: Sequence[Record]) -> str:
    """Of the records of one file."""
    seen = [seen_in(record) for record in records]
    provoked, proven = any(one[0] for one in seen), any(one[1] for one in seen)
    if proven and not provoked and any(one[1] and one[2] for one in seen):
        return ALONE
    if proven:
        return BOTH if provoked else EXPLAINED
    if any((record["evaluation"].get("race_proof") or {}).get("why_not") for record in records):
        return UNDECIDED
    if provoked:
        return NOT_PROVEN
    return CLEAN if any(one[2] for one in seen) else EARLIER


def by_file(records: Iterable[Record]) -> dict[tuple[str, int, str], list[Record]]:
    latest: dict[tuple[str, int, str, str], Record] = {}
    for record in records:
        said = record["evaluation"]
        latest[record["collection"], record["problem"], said["candidate"]["sha256"], said["plan"]] = record
    found: dict[tuple[str, int, str], list[Record]] = {}
    for (collection, problem, sha, _), record in sorted(latest.items()):
        found.setdefault((collection, problem, sha), []).append(record)
    return found


def table(files: Mapping[tuple[str, int, str], Sequence[Record]]) -> str:
    classes = {key: class_of(records) for key, records in files.items()}
    trees = sorted({collection for collection, _, _ in files})
    counts = Counter((name, key[0]) for key, name in classes.items())
    lines = [f"| in the traces of a file | {' | '.join(trees)} | all |", "|---|" + "---|" * (len(trees) + 1)]
    for name in (ALONE, BOTH, EXPLAINED, NOT_PROVEN, CLEAN, UNDECIDED, EARLIER):
        row = [counts[name, tree] for tree in trees]
        lines.append(f"| {name} | {' | '.join(map(str, row))} | {sum(row)} |")
    row = [sum(1 for collection, _, _ in files if collection == tree) for tree in trees]
    lines.append(f"| files | {' | '.join(map(str, row))} | {sum(row)} |")
    proofs = [proof for found in files.values() for one in found if (proof := one["evaluation"].get("race_proof"))]
    traces, events = (sum(proof[name] for proof in proofs) for name in ("traces", "events"))
    undecided = sum(bool(proof["why_not"]) for proof in proofs)
    kinds = Counter(
        kind
        for found in files.values()
        for kind in {
            finding["kind"]
            for one in found
            for finding in (one["evaluation"].get("race_proof") or {}).get("findings", ())
        }
    )
    said = ", ".join(f"`{kind}` {count}" for kind, count in kinds.most_common())
    lines += ["", f"{traces} traces, {events:,} events; {undecided} traces were not decided. Files by kind: {said}."]
    lines += [
        "",
        "Seen by the detector alone:",
        "",
        "| tree | problem | plan | kinds | lines |",
        "|---|---|---|---|---|",
    ]
    lines += [row for key, found in files.items() if classes[key] == ALONE for row in _rows(key, found)]
    return "\n".join(lines) + "\n"


def _rows(key: tuple[str, int, str], records: Sequence[Record]) -> Iterator[str]:
    for record in records:
        said = record["evaluation"]
        findings = (said.get("race_proof") or {}).get("findings", ())
        if findings:
            kinds = ", ".join(sorted({f"`{finding['kind']}`" for finding in findings}))
            pairs = sorted(
                {tuple(finding[side]["candidate_line"] for side in ("first", "second")) for finding in findings}
            )
            yield f"| {key[0]} | {key[1]} | {said['plan']} | {kinds} | {', '.join(f'{a}/{b}' for a, b in pairs[:4])} |"


def tables(options: argparse.Namespace) -> int:
    found = by_file(json.loads(line) for path in options.table for line in path.read_text().splitlines())
    if options.keep:
        kept = [record for records in found.values() for record in records]
        options.keep.write_text("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in kept))
    text = table(found)
    print(text, end="")
    if options.page:
        page = options.page.read_text()
        before, _, rest = page.partition(BEGIN)
        options.page.write_text(before + BEGIN + text + END + rest.partition(END)[2])
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", type=Path, nargs="*", help="folders of candidates")
    parser.add_argument("--out", type=Path, help="where records are appended")
    parser.add_argument("--whole", type=Path, help="where whole verdicts are kept, outside of the repository")
    parser.add_argument("--plans", default=",".join(PLANS_HERE))
    parser.add_argument("--only", default="", help="problems by id, such as 1,2,13")
    parser.add_argument("--budget", type=float, help="begin with no further file after so many seconds")
    parser.add_argument("--call-limit", type=float, default=30.0, help="seconds that a batch of calls may take")
    parser.add_argument("--table", type=Path, nargs="+", help="judge nothing, count these records")
    parser.add_argument("--keep", type=Path, help="with --table: write what is counted to this file")
    parser.add_argument("--page", type=Path, help="with --table: a page that has the table between two comments")
    options = parser.parse_args()
    return tables(options) if options.table else run(options)


if __name__ == "__main__":
    sys.exit(main())
