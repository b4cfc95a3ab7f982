"""Judges trees of candidates that others have published, and keeps what was found without a word of theirs.

    git clone https://github.com/togethercomputer/ParallelKernelBench && git -C ParallelKernelBench checkout dab0830
    python benchmarks/frontier.py ParallelKernelBench/solutions_* --out out/frontier [--budget 540] [--plans standard,published]
    python benchmarks/frontier_page.py

Without a GPU: `--platform cpu --nvls --size tiny --plans quick --workers 1`.

One sweep over all files and plans (4 ranks, size paper, platform virtual), one verdict after another on a GPU, builds ahead on
the other cores. Every verdict is appended to a file of its tree and plan the moment it is there, so it can be stopped at any
time; what is in `--out` or in docs/records already is not judged again. Records hold ids, hashes, words of our own vocabulary,
times and figures (pkb.analysis.bare_verdicts): never a message, a name or a line out of the files.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pkb.analysis.bare_verdicts import bare
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
from pkb.store import CandidateFile, Run, Store, Task, TaskSpec
from pkb.types.case import AUTO, Case
from pkb.types.verdict import Verdict

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
Known = set[tuple[str, str, str]]
"""(collection, plan, hash of the file) of what has a record."""


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
    counts: dict[str, dict[str, Any]]
    """By collection: how many files, how many for problems that are gone, refused, impossible with these ranks; and paths."""


def collection_of(tree: Path) -> str:
    return TREES.get(tree.resolve().name) or "".join(
        c if c.isalnum() or c in "-." else " " for c in tree.resolve().name
    )


def record_file(folder: Path, collection: str, plan: str) -> Path:
    return folder / f"frontier-{collection.replace(' ', '-')}-{plan}.jsonl"


def known_in(folders: Iterable[Path]) -> Known:
    found: Known = set()
    for folder in folders:
        for path in sorted(folder.glob("frontier-*.jsonl")):
            for line in path.read_text().splitlines():
                record = json.loads(line)
                said = record["evaluation"]
                found.add((record["collection"], said["plan"], said["candidate"]["sha256"]))
    return found


def planned(
    trees: Sequence[Path], plans: Sequence[str], like: Case, known: Known, *, with_paths: bool = False
) -> Planned:
    registry, facts = default_registry(), pick(like.platform)
    problems = {problem.name: problem.id for problem in registry.all()}
    found = Planned({}, {}, {})
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
                if (collection, name, sha_of(file)) not in known:
                    found.tasks[settled.key] = settled
                    found.files[settled.key] = file
    return found


def sha_of(file: CandidateFile) -> str:
    return hashlib.sha256(file.source).hexdigest()


class Recorder:
    """Writes every verdict down at once, and tells how it goes without quoting anything."""

    def __init__(self, store: Store, run: Run, folder: Path, total: int) -> None:
        self.store, self.run, self.folder, self.total = store, run, folder, total
        self.began, self.done, self.counts = time.monotonic(), 0, Counter[str]()

    def stage(self, task: Task, text: str) -> None:
        return

    def judged(self, task: Task, verdict: str, detail: str) -> None:
        document = self.store.document(next(
            row.document_sha for row in self.store.evaluations([self.run.id]) if row.task_key == task.key
        ))  # fmt: skip
        self._keep(task, bare(document))

    def failed(self, task: Task, why: str, *, again: bool) -> None:
        print(f"  {task.problem}: no verdict{', trying again' if again else ''}: {why[-200:]!r}", file=sys.stderr)
        if not again:
            self._keep(task, nothing_said(task))

    def _keep(self, task: Task, evaluation: Mapping[str, Any]) -> None:
        record = {"collection": task.collection, "problem": task.problem_id, "sample": task.sample}
        with record_file(self.folder, task.collection, task.case.plan).open("a") as out:
            out.write(json.dumps(record | {"evaluation": evaluation}, separators=(",", ":")) + "\n")
        self.done += 1
        self.counts[str(evaluation["verdict"])] += 1
        seconds = time.monotonic() - self.began
        words = f"{task.collection}, {task.case.plan}, problem {task.problem_id}: {evaluation['verdict']}"
        print(
            f"[{seconds:6.1f} s, {seconds / self.done:4.1f} each] {self.done}/{self.total} {words}",
            file=sys.stderr,
            flush=True,
        )


def nothing_said(task: Task) -> dict[str, Any]:
    """Of a task that the sweep has given up: the judge could not say."""
    name = task.problem.partition("_")[2]
    sha = task.candidate_sha or ""
    return {
        "verdict": str(Verdict.HARNESS_ERROR), "stage": "start", "detail": "harness error", "ranks": task.case.ranks,
        "problem": {"id": task.problem_id, "name": name, "version": 1}, "platform": task.case.platform,
        "candidate": {"file": f"{task.problem}_{task.backend}.py", "sha256": sha, "backend": task.backend},
        "size": task.case.size, "dtype": task.case.dtype, "plan": task.case.plan, "schema": 2,
    }  # fmt: skip


def judge(
    work: Planned, folder: Path, *, budget_s: float | None, builders: int, workers: int | None, settings: SweepSettings
) -> Counter[str]:
    platforms = {task.case.platform for task in work.tasks.values()}
    devices = seat_devices(platforms)
    seats = workers or (len(devices) if devices else 1)
    with tempfile.TemporaryDirectory(prefix="pkb-frontier-") as place, Store(Path(place)) as store:
        run = store.create_run("sweep", name="frontier", tasks=work.tasks.values(), candidates=work.files)
        watcher = Recorder(store, run, folder, len(work.tasks))
        executor = LocalExecutor(
            seats=seats, builders=builders, concurrency=1, devices=[device for device in devices or () if device]
        )
        Sweep(store, run, executor=executor, settings=settings, watcher=watcher, budget_s=budget_s).work()
    return watcher.counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trees", type=Path, nargs="+", help="folders of candidates")
    parser.add_argument("--out", type=Path, required=True, help="where records are appended")
    parser.add_argument(
        "--have", type=Path, action="append", default=[RECORDS], help="folders of records not to repeat"
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
    parser.add_argument(
        "--paths", action="store_true", help="judge nothing, count how the texts move data (tree-sitter)"
    )
    options = parser.parse_args()
    if options.nvls:
        os.environ["PKB_NVLS"] = "1"
    began = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    like = Case("", pick(options.platform).name, options.ranks, options.size, AUTO)
    known = known_in([*options.have, options.out])
    plans = ["standard"] if options.paths else options.plans.split(",")
    work = planned(options.trees, plans, like, known, with_paths=options.paths)
    if options.only:
        wanted = {int(number) for number in options.only.split(",")}
        work = work._replace(tasks={key: task for key, task in work.tasks.items() if task.problem_id in wanted})
        work = work._replace(files={key: work.files[key] for key in work.tasks})
    counts_file = options.out / COUNTS
    before = json.loads(counts_file.read_text()) if counts_file.exists() else {}
    merged = before | {name: before.get(name, {}) | counts for name, counts in work.counts.items()}
    counts_file.write_text(json.dumps(merged, indent=1) + "\n")
    if options.paths:
        return
    print(
        f"{len(work.tasks)} verdicts to reach, {len(known)} there already; {like}; plans {options.plans}",
        file=sys.stderr,
    )
    left = None if options.budget is None else options.budget - (time.monotonic() - began)
    settings = SweepSettings(call_limit_s=options.call_limit)
    counts: Mapping[str, int] = {}
    if work.tasks:
        counts = judge(
            work, options.out, budget_s=left, builders=options.builders, workers=options.workers, settings=settings
        )
    seconds, done = time.monotonic() - began, sum(counts.values())
    print(json.dumps({
        "verdicts": dict(counts), "seconds": round(seconds, 1), "each": round(seconds / done, 2) if done else None,
        "left": len(work.tasks) - done,
    }))  # fmt: skip
    sys.exit(0 if done == len(work.tasks) else 3)


if __name__ == "__main__":
    main()
