"""Records of published candidates: what is kept of each verdict, and which verdicts a later pass will judge again.

Used by benchmarks/frontier.py, which explains the passes.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from frontier_counts import COST, COUNTS, read_records
from kernel_records import Tries, write_whole
from lanes import doubtful

from pkb.analysis.bare_verdicts import bare
from pkb.analysis.modes import FailureMode, failure_mode
from pkb.judge.stages.artifacts import cache_folder
from pkb.judge.timing.starts import NEAR_STARTS
from pkb.problems.registry import default_registry
from pkb.problems.suite import suite
from pkb.store import Run, Store, Task
from pkb.types.failure import FailureKind
from pkb.types.plan import PUBLISHED
from pkb.types.verdict import Stage, Verdict

Key = tuple[str, str, int, str]
"""Collection, plan, problem, hash of the file: the same text may be there for two problems."""
Known = dict[Key, str]
"""What has a record, and the verdict (or `NEAR`) of those whose record is provisional."""
PASSES = ("words", "times", "doubts", "near", "reused")
NEAR = "near 1"
"""In place of a verdict: it has times, and more of them may decide."""
RIGHT = (str(Verdict.CORRECT), str(Verdict.REUSED_OUTPUT))


def record_file(folder: Path, collection: str, plan: str) -> Path:
    return folder / f"frontier-{collection.replace(' ', '-')}-{plan}.jsonl"


def key_of(record: Mapping[str, Any]) -> Key:
    said = record["evaluation"]
    return record["collection"], said["plan"], record["problem"], said["candidate"]["sha256"]


def is_present(record: Mapping[str, Any]) -> bool:
    """Judged by the present rules on the present problem; what is older is judged again."""
    said = record["evaluation"]
    versions = {problem.id: problem.version for problem in default_registry().all()}
    judge = (said.get("suite") or {}).get("judge")
    return judge == suite().judge_version and said["problem"]["version"] == versions.get(said["problem"]["id"])


def known_in(folders: Iterable[Path]) -> Known:
    found: Known = {}
    for folder in folders:
        for path in sorted(folder.glob("frontier-*.jsonl")):
            for record in read_records(path):
                if not is_present(record):
                    continue
                key = key_of(record)
                timed = record["evaluation"].get("timing")
                verdict = "" if not record.get("provisional") else NEAR if timed else record["evaluation"]["verdict"]
                found[key] = found.get(key, verdict) and verdict
    return found


def is_provisional(document: Mapping[str, Any]) -> bool:
    """Of a verdict without times, reached beside others: whether one that is reached alone has more to say."""
    return (
        document["verdict"] in RIGHT
        or doubtful(document)
        or failure_mode(document) is FailureMode.DEADLOCK  # a wait of its own that gave up
        or (document.get("failure") or {}).get("kind") == FailureKind.BUILD_LIMIT
        or (document["plan"] == PUBLISHED and document["verdict"] == Verdict.WRONG)
    )


def is_near(document: Mapping[str, Any]) -> bool:
    """Of a verdict with times from the planned rounds alone: whether more rounds, or more starts, might say something else."""
    timing = document.get("timing") or {}
    return document["plan"] != PUBLISHED and 1 / NEAR_STARTS < timing.get("speedup", 0.0) < NEAR_STARTS


def pass_of(verdict: str | None, plan: str) -> str:
    """Where a file belongs whose record is provisional with this verdict, or that has none."""
    if verdict is None:
        return "words"
    if verdict == NEAR:
        return "near"
    if verdict == Verdict.REUSED_OUTPUT and plan != PUBLISHED:  # by the published rules it is as right as any
        return "reused"
    return "times" if verdict in RIGHT else "doubts"


class Recorder:
    """Writes every verdict down at once, and tells how it goes without quoting anything."""

    def __init__(
        self, store: Store, run: Run, folder: Path, *, total: int, lanes: int, known: Known, hurried: bool = False
    ) -> None:
        self.store, self.run, self.folder, self.total, self.lanes = store, run, folder, total, lanes
        self.known, self.hurried = known, hurried
        self.began, self.done, self.counts = time.monotonic(), 0, Counter[str]()
        self.tries = Tries()

    def stage(self, task: Task, text: str) -> None:
        return

    def judged(self, task: Task, verdict: str, detail: str) -> None:
        document = self.store.document(next(
            row.document_sha for row in self.store.evaluations([self.run.id]) if row.task_key == task.key
        ))  # fmt: skip
        if document["stage"] not in (Stage.INSPECT, Stage.BUILD):  # those need no device
            self.tries.gave(verdict)
        provisional = is_near(document) if self.hurried else self.lanes > 1 and is_provisional(document)
        self._keep(task, bare(document), provisional=provisional)

    def failed(self, task: Task, why: str, *, again: bool) -> None:
        print(f"  {task.problem}: no verdict{', trying again' if again else ''}: {why[-200:]!r}", file=sys.stderr)
        self.tries.gave(None)
        before = self.known.get((task.collection, task.case.plan, task.problem_id, task.candidate_sha or ""))
        # A verdict that was reached in company says more than none: it stays, and the file is owed.
        if not again and before in (None, Verdict.HARNESS_ERROR):
            self._keep(task, nothing_said(task), provisional=self.lanes > 1)

    def _keep(self, task: Task, evaluation: dict[str, Any], *, provisional: bool) -> None:
        record: dict[str, Any] = {"collection": task.collection, "problem": task.problem_id, "sample": task.sample}
        if self.lanes > 1 and (provisional or evaluation["stage"] not in (Stage.INSPECT, Stage.BUILD)):
            record["beside"] = self.lanes
        if provisional:
            record["provisional"] = True
        keep(self.folder, record | {"evaluation": evaluation})
        self.done += 1
        if self.done == 1:
            say_slow_builds()
        self.counts[str(evaluation["verdict"])] += 1
        seconds = time.monotonic() - self.began
        words = f"{task.collection}, {task.case.plan}, problem {task.problem_id}: {evaluation['verdict']}"
        print(
            f"[{seconds:6.1f} s, {seconds / self.done:4.1f} each] {self.done}/{self.total} {words}",
            file=sys.stderr,
            flush=True,
        )


def say_slow_builds() -> None:
    """Without the adaptor to torch each build takes minutes, and nothing else shows why."""
    for path in cache_folder().glob("*.failed"):
        print(f"SLOW: builds have torch's own headers, since ours failed ({path}):", file=sys.stderr)
        print(path.read_text(errors="replace")[-1000:], file=sys.stderr)


def keep(folder: Path, record: Mapping[str, Any]) -> None:
    """In place of what is said of the same file by the same plan, if anything is."""
    key = key_of(record)
    path = record_file(folder, key[0], key[1])
    others = [one for one in (read_records(path) if path.exists() else ()) if key_of(one) != key]
    write_whole(path, "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in (*others, record)))


def worth(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """By the present rules, then settled, then with times, then the later one."""
    said = record["evaluation"]
    return (
        is_present(record),
        not record.get("provisional"),
        bool(said.get("timing")),
        str(said.get("started_at") or ""),
    )


def merge(came: Path, kept: Path) -> None:
    """Records of another folder into this one, as often and in whatever order one likes: the one that says more stays."""
    worths = {key_of(record): worth(record) for path in kept.glob("frontier-*.jsonl") for record in read_records(path)}
    for path in sorted(came.glob("frontier-*.jsonl")):
        for record in read_records(path):
            if worth(record) > worths.get(key_of(record), ()):
                keep(kept, record)
    for name, both in ((COST, _costs), (COUNTS, _counts)):
        if (came / name).exists():
            there = json.loads((kept / name).read_text()) if (kept / name).exists() else None
            write_whole(kept / name, json.dumps(both(there, json.loads((came / name).read_text())), indent=1) + "\n")


def _costs(there: list[Any] | None, new: list[Any]) -> list[Any]:
    return [*(there or []), *(one for one in new if one not in (there or []))]


def _counts(there: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    return (there or {}) | {name: (there or {}).get(name, {}) | counts for name, counts in new.items()}


def nothing_said(task: Task) -> dict[str, Any]:
    """Of a task that the sweep has given up: the judge could not say."""
    problem, sha = default_registry().get(task.problem), task.candidate_sha or ""
    return {
        "verdict": str(Verdict.HARNESS_ERROR), "stage": "start", "detail": "harness error", "ranks": task.case.ranks,
        "problem": {"id": problem.id, "name": problem.name, "version": problem.version}, "platform": task.case.platform,
        "suite": {"version": suite().version, "judge": suite().judge_version},
        "candidate": {"file": f"{task.problem}_{task.backend}.py", "sha256": sha, "backend": task.backend},
        "size": task.case.size, "dtype": task.case.dtype, "plan": task.case.plan, "schema": 2,
    }  # fmt: skip
