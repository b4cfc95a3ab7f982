"""Judges trees of candidates that others have published, and keeps what was found without a word of theirs.

    git clone https://github.com/togethercomputer/ParallelKernelBench && git -C ParallelKernelBench checkout dab0830
    python benchmarks/frontier.py ParallelKernelBench/solutions_* --out out/frontier [--budget 540] [--plans standard,published]
    python benchmarks/frontier_page.py

Without a GPU: `--platform cpu --nvls --size tiny --plans quick --workers 1`.

All files and plans (4 ranks, size paper, platform virtual), builds ahead on the other cores. With `--lanes 3` the first pass
judges without times, three candidates beside each other on the GPU: most of a verdict is starting ranks, and most candidates
fail. Then, one by one, what was right is judged again with times (`--passes times`), and last what company may have caused
(`--passes doubts`): deadlocks, crashes, no memory left. A wrong result or a race needs no second look: company can make ranks
late, and a correct kernel is correct whoever is late. Only the plan `published` has its wrong ones judged again, since one call
may have been unlucky.

On a GPU that is rented by the minute, in the order of worth; each ends within its budget, and the same again goes on:

    nice -n 19 python benchmarks/frontier_builds.py CUDA_TREES &        beforehand: compilers only, no GPU
    python benchmarks/frontier.py CUDA_TREES --out OUT --lanes 5 --plans standard --passes words --budget 600
    python benchmarks/frontier.py ONE_CUDA_TREE --out OUT --lanes 5 --plans published --passes words --budget 150
    python benchmarks/frontier.py CUDA_TREES --out OUT --plans standard,published --passes times --budget 600
    python benchmarks/frontier.py TREES --out OUT --lanes 5 --plans standard --budget 300

Every verdict is in a file of its tree and plan the moment it is there, so it can be stopped at any time; what is in `--out` or
in docs/records already is not judged again by the same rules, and a later verdict on a file takes the place of an earlier one.
Records hold ids, hashes, words of our own vocabulary, times and figures (pkb.analysis.bare_verdicts): never a message, a name
or a line out of the files. `beside`: how many were judged at a time, where ranks ran; `provisional`: a later pass has not come
to it yet.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from gpu_share import Busy

from pkb.analysis.bare_verdicts import bare
from pkb.analysis.modes import FailureMode, failure_mode
from pkb.candidates.rules import inspect_source
from pkb.candidates.source import read as read_source
from pkb.cli.run_sweep import seat_devices
from pkb.cluster.local import LocalExecutor
from pkb.cluster.planning import plan_candidates
from pkb.cluster.settings import SweepSettings
from pkb.cluster.sweep import Sweep
from pkb.judge.settling import why_not
from pkb.platforms.registry import pick
from pkb.problems.registry import default_registry
from pkb.problems.suite import suite
from pkb.store import CandidateFile, Run, Store, Task, TaskSpec
from pkb.types.case import AUTO, Case
from pkb.types.plan import PUBLISHED
from pkb.types.verdict import Stage, Verdict

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "docs" / "records"
TREES = {
    "solutions_cuda_bf16_h100_8_openai_gpt-5.5": "gpt-5.5 cuda",
    "solutions_cuda_bf16_h100_8_anthropic_claude-opus-4-7": "opus-4.7 cuda",
    "solutions_cuda_bf16_h100_8_google_gemini-3-pro-preview": "gemini-3-pro cuda",
    "solutions_triton_bf16_h100_8_google_gemini-3-pro-preview": "gemini-3-pro triton",
    "solutions_parallelkittens_bf16_h100_8_google_gemini-3-pro-preview": "gemini-3-pro parallelkittens",
}
"""Folders of that commit, and what they are called here: a model of published.toml and a backend."""
COUNTS = "frontier-trees.json"
COST = "frontier-cost.json"
Key = tuple[str, str, str]
"""Collection, plan, hash of the file."""
Known = dict[Key, str]
"""What has a record, and the verdict of those whose record is provisional."""
PASSES = ("words", "times", "doubts")
RIGHT = (str(Verdict.CORRECT), str(Verdict.REUSED_OUTPUT))


def paths_of(files: Iterable[CandidateFile]) -> dict[str, int]:
    """In how many files each path seems to be used; empty where the parser of CUDA is not installed."""
    if importlib.util.find_spec("tree_sitter_cuda") is None:
        return {}
    found = Counter[str]()
    for file in files:
        if not file.source.strip():
            continue
        source = read_source(Path(file.origin))
        if source.syntax_error is None:
            found.update({use.path for use in inspect_source(source).paths})
    return dict(found)


class Planned(NamedTuple):
    tasks: dict[str, TaskSpec]
    files: dict[str, CandidateFile]
    passes: dict[str, str]
    """Where each task belongs."""
    counts: dict[str, dict[str, Any]]
    """By collection: how many files, how many for problems that are gone, refused, impossible with these ranks; and paths."""


def collection_of(tree: Path) -> str:
    return TREES.get(tree.resolve().name) or "".join(
        c if c.isalnum() or c in "-." else " " for c in tree.resolve().name
    )


def record_file(folder: Path, collection: str, plan: str) -> Path:
    return folder / f"frontier-{collection.replace(' ', '-')}-{plan}.jsonl"


def key_of(record: Mapping[str, Any]) -> Key:
    said = record["evaluation"]
    return record["collection"], said["plan"], said["candidate"]["sha256"]


def is_present(record: Mapping[str, Any]) -> bool:
    """Judged by the present rules on the present problem; what is older is judged again."""
    said = record["evaluation"]
    problem = default_registry().get(str(said["problem"]["id"]))
    return (said.get("suite") or {}).get("judge") == suite().judge_version and said["problem"][
        "version"
    ] == problem.version


def known_in(folders: Iterable[Path]) -> Known:
    found: Known = {}
    for folder in folders:
        for path in sorted(folder.glob("frontier-*.jsonl")):
            for line in path.read_text().splitlines():
                record = json.loads(line)
                if not is_present(record):
                    continue
                key = key_of(record)
                verdict = record["evaluation"]["verdict"] if record.get("provisional") else ""
                found[key] = found.get(key, verdict) and verdict
    return found


def is_provisional(document: Mapping[str, Any]) -> bool:
    """Of a verdict without times, reached beside others: whether one that is reached alone has more to say."""
    failure = document.get("failure") or {}
    no_memory = "OutOfMemory" in str(failure.get("name")) or "out of memory" in str(failure.get("message"))
    return (
        document["verdict"] in (*RIGHT, Verdict.DEADLOCK, Verdict.CRASH, Verdict.HARNESS_ERROR)
        or failure_mode(document) is FailureMode.DEADLOCK  # a wait of its own that gave up
        or no_memory
        or (document["plan"] == PUBLISHED and document["verdict"] == Verdict.WRONG)
    )


def pass_of(verdict: str | None) -> str:
    """Where a file belongs whose record is provisional with this verdict, or that has none."""
    return "words" if verdict is None else "times" if verdict in RIGHT else "doubts"


def planned(
    trees: Sequence[Path], plans: Sequence[str], like: Case, known: Known, *, with_paths: bool = False
) -> Planned:
    registry, facts = default_registry(), pick(like.platform)
    problems = {problem.name: problem.id for problem in registry.all()}
    found = Planned({}, {}, {}, {})
    for name in plans:
        for tree in trees:
            collection = collection_of(tree)
            read = plan_candidates([tree], problems=problems, like=replace(like, plan=name))
            counts = found.counts[collection] = {
                "files": len(read.tasks) + len(read.gone) + len(read.refused),
                "gone": len(read.gone),
                "refused": len(read.refused),
                "impossible": 0,
                "empty": sum(not file.source.strip() for file in read.candidates.values()),
            }
            if with_paths:
                counts["paths"] = paths_of(read.candidates.values())
            for task in read.tasks:
                problem, file = registry.get(task.problem), read.candidates[task.key]
                if not file.source.strip():  # no answer: counted, and there is nothing to judge
                    continue
                case = task.case.resolve(
                    problem=problem.stem, platform=facts.name, size=like.size, dtype=problem.default_dtype
                )
                if why_not(case, problem, facts) is not None:
                    counts["impossible"] += 1
                    continue
                settled = replace(task, collection=collection, case=case)
                before = known.get((collection, name, sha_of(file)))
                if before != "":
                    found.tasks[settled.key] = settled
                    found.files[settled.key] = file
                    found.passes[settled.key] = pass_of(before)
    return found


def part_of(work: Planned, name: str, only: Set[int]) -> Planned:
    """The tasks of one pass, in the order of the plans. Multicast, which one GPU does not have, comes last of a plan: little is
    to be learned from those files here, and ranks that fault take their time to end."""
    plans = list(dict.fromkeys(task.case.plan for task in work.tasks.values()))
    keys = [
        key
        for key, task in work.tasks.items()
        if work.passes[key] == name and task.problem_id in (only or {task.problem_id})
    ]
    keys.sort(key=lambda key: (plans.index(work.tasks[key].case.plan), b"multimem." in work.files[key].source))
    return work._replace(tasks={key: work.tasks[key] for key in keys}, files={key: work.files[key] for key in keys})


def sha_of(file: CandidateFile) -> str:
    return hashlib.sha256(file.source).hexdigest()


class Recorder:
    """Writes every verdict down at once, and tells how it goes without quoting anything."""

    def __init__(self, store: Store, run: Run, folder: Path, *, total: int, lanes: int) -> None:
        self.store, self.run, self.folder, self.total, self.lanes = store, run, folder, total, lanes
        self.began, self.done, self.counts = time.monotonic(), 0, Counter[str]()

    def stage(self, task: Task, text: str) -> None:
        return

    def judged(self, task: Task, verdict: str, detail: str) -> None:
        document = self.store.document(next(
            row.document_sha for row in self.store.evaluations([self.run.id]) if row.task_key == task.key
        ))  # fmt: skip
        self._keep(task, bare(document), provisional=is_provisional(document))

    def failed(self, task: Task, why: str, *, again: bool) -> None:
        print(f"  {task.problem}: no verdict{', trying again' if again else ''}: {why[-200:]!r}", file=sys.stderr)
        if not again:
            self._keep(task, nothing_said(task), provisional=True)

    def _keep(self, task: Task, evaluation: dict[str, Any], *, provisional: bool) -> None:
        record: dict[str, Any] = {"collection": task.collection, "problem": task.problem_id, "sample": task.sample}
        if self.lanes > 1 and evaluation["stage"] not in (Stage.INSPECT, Stage.BUILD):
            record |= {"beside": self.lanes} | ({"provisional": True} if provisional else {})
        keep(self.folder, record | {"evaluation": evaluation})
        self.done += 1
        self.counts[str(evaluation["verdict"])] += 1
        seconds = time.monotonic() - self.began
        words = f"{task.collection}, {task.case.plan}, problem {task.problem_id}: {evaluation['verdict']}"
        print(
            f"[{seconds:6.1f} s, {seconds / self.done:4.1f} each] {self.done}/{self.total} {words}",
            file=sys.stderr,
            flush=True,
        )


def keep(folder: Path, record: Mapping[str, Any]) -> None:
    """In place of what is said of the same file by the same plan, if anything is."""
    key = key_of(record)
    path = record_file(folder, key[0], key[1])
    line = json.dumps(record, separators=(",", ":")) + "\n"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    others = [other for other in lines if key_of(json.loads(other)) != key]
    if len(others) == len(lines):
        with path.open("a") as out:
            out.write(line)
        return
    new = path.with_suffix(".new")
    new.write_text("".join(others) + line)
    new.replace(path)


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


def judge(
    work: Planned,
    folder: Path,
    *,
    budget_s: float | None,
    builders: int,
    workers: int | None,
    lanes: int,
    settings: SweepSettings,
) -> Counter[str]:
    """`lanes`: at a time on each GPU; without times if there are several."""
    platforms = {task.case.platform for task in work.tasks.values()}
    devices = [device for device in seat_devices(platforms) or () if device]
    seats = workers or len(devices) or 1
    print(
        f"{len(work.tasks)} verdicts, {lanes} beside each other" + (", not timed" if lanes > 1 else ""), file=sys.stderr
    )
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pkb-frontier-")))
        began = time.monotonic()
        if lanes > 1:
            settings, seats = replace(settings, timing=False), seats * lanes
        store = stack.enter_context(Store(place))
        busy = stack.enter_context(Busy())
        run = store.create_run("sweep", name="frontier", tasks=work.tasks.values(), candidates=work.files)
        watcher = Recorder(store, run, folder, total=len(work.tasks), lanes=lanes)
        executor = LocalExecutor(seats=seats, builders=builders, concurrency=1, devices=devices)
        try:
            Sweep(store, run, executor=executor, settings=settings, watcher=watcher, budget_s=budget_s).work()
        finally:
            note_cost(folder, lanes=lanes, seconds=time.monotonic() - began, counts=watcher.counts, share=busy.share)
    return watcher.counts


def note_cost(folder: Path, *, lanes: int, seconds: float, counts: Mapping[str, int], share: float | None) -> None:
    path = folder / COST
    before = json.loads(path.read_text()) if path.exists() else []
    busy = None if share is None else round(share, 3)
    now = {"lanes": lanes, "seconds": round(seconds, 1), "verdicts": dict(counts), "gpu_busy": busy}
    path.write_text(json.dumps([*before, now], indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trees", type=Path, nargs="+", help="folders of candidates")
    parser.add_argument("--out", type=Path, required=True, help="where records are kept")
    parser.add_argument(
        "--have", type=Path, action="append", help="folders of records not to repeat, in place of docs/records"
    )
    parser.add_argument("--plans", default="standard,published")
    parser.add_argument("--budget", type=float, help="stop after so many seconds; call it again to go on")
    parser.add_argument("--platform", default=AUTO)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--size", default="paper")
    parser.add_argument("--nvls", action="store_true", help="on cpu: an emulated switch, as `pkb eval --nvls`")
    parser.add_argument("--call-limit", type=float, help="seconds that a call may take; the sweep's own if not said")
    parser.add_argument("--only", default="", help="problems by id, such as 1,2,13")
    parser.add_argument("--builders", type=int, default=max(1, len(os.sched_getaffinity(0)) - 1))
    parser.add_argument("--workers", type=int)
    parser.add_argument("--lanes", type=int, default=1, help="candidates beside each other while nothing is timed")
    parser.add_argument("--passes", default=",".join(PASSES), help="of these, in this order")
    parser.add_argument(
        "--paths", action="store_true", help="judge nothing, count how the texts move data (tree-sitter)"
    )
    options = parser.parse_args()
    if options.nvls:
        os.environ["PKB_NVLS"] = "1"
    began = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    like = Case("", pick(options.platform).name, options.ranks, options.size, AUTO)
    have = [*(options.have or [RECORDS]), options.out]
    plans = ["standard"] if options.paths else options.plans.split(",")
    only = {int(number) for number in filter(None, options.only.split(","))}
    counts = Counter[str]()
    for name in options.passes.split(","):
        known = known_in(have)
        work = planned(options.trees, plans, like, known, with_paths=options.paths)
        count_files(options.out, work)
        if options.paths:
            return
        part = part_of(work, name, only)
        budget = None if options.budget is None else options.budget - (time.monotonic() - began)
        if part.tasks and (budget is None or budget > 0):
            counts += judge(
                part,
                options.out,
                budget_s=budget,
                builders=options.builders,
                workers=options.workers,
                lanes=options.lanes if name == "words" else 1,
                settings=SweepSettings(call_limit_s=options.call_limit),
            )
    work = planned(options.trees, plans, like, known_in(have))
    left_by_pass = {name: len(part_of(work, name, only).tasks) for name in PASSES}
    seconds, done = time.monotonic() - began, counts.total()
    print(json.dumps({
        "verdicts": dict(counts), "seconds": round(seconds, 1), "each": round(seconds / done, 2) if done else None,
        "left": left_by_pass,
    }))  # fmt: skip
    sys.exit(3 if any(left_by_pass.values()) else 0)


def count_files(folder: Path, work: Planned) -> None:
    """What the trees hold, beside what was counted before."""
    path = folder / COUNTS
    before = json.loads(path.read_text()) if path.exists() else {}
    merged = before | {name: before.get(name, {}) | counts for name, counts in work.counts.items()}
    path.write_text(json.dumps(merged, indent=1) + "\n")


if __name__ == "__main__":
    main()
