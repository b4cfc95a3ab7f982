"""Judges trees of candidates that others have published, and keeps the results without any text of theirs.

    git clone https://github.com/togethercomputer/ParallelKernelBench && git -C ParallelKernelBench checkout dab0830
    python benchmarks/frontier.py ParallelKernelBench/solutions_* --out out/frontier --lanes 5 [--budget 540]
    python benchmarks/frontier_page.py

Without a GPU: `--platform cpu --nvls --size tiny --plans quick --workers 1`.

All files are judged by all plans (4 ranks, size paper, platform virtual), with builds ahead on the other cores. With `--lanes
5` candidates are first judged without times, five at a time on the GPU, because most of an evaluation is starting ranks, and
most candidates fail (pass `words`). Then, one at a time, correct candidates are judged again with times (`times`), then
results that running side by side may have caused (`doubts`: deadlocks, crashes, no memory left), then times near 1 with all
the rounds and starts that the judge takes (`near`: in `times` it takes the planned ones), then candidates that are
correct except for an output that the next call overwrites (`reused`: their times are in no table). A wrong result or a race
needs no second evaluation: other evaluations only delay ranks, and that does not make a correct kernel wrong. Only in the plan
`published` are wrong candidates judged again, since its single call may have been unlucky.

The most important work comes first (`phases`), so that a GPU rented by the minute can be returned at any time: one tree is
finished before the next is begun, CUDA first. With `--budget` it begins nothing in the last 10 s, and then ends what is
running. The same command again continues. The exit status is 3 as long as
something is left, 0 when nothing is, and 4 if candidate after candidate gets no verdict, which is the machine's fault.

Every verdict is appended at once to the file of its tree and plan, so the program can be stopped at any time. What is already
in `--out` or in docs/records is not judged again by the same rules, and a later verdict on a file replaces an earlier one.
Records hold ids, hashes, words of our own vocabulary, times and figures (pkb.analysis.bare_verdicts), and never a message, a
name or a line of the files. `beside` is the number of candidates judged at a time where ranks ran; `provisional` means that a
later pass has not reached it yet.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from frontier_counts import COST, COUNTS
from frontier_passes import PASSES, Known, Recorder, known_in, pass_of
from gpu_share import Busy
from kernel_records import alone_in, write_whole

from pkb.candidates.rules import inspect_source
from pkb.candidates.source import read as read_source
from pkb.cli.run_sweep import seat_devices
from pkb.cluster.local import LocalExecutor
from pkb.cluster.planning import plan_candidates
from pkb.cluster.settings import SweepSettings
from pkb.cluster.sweep import LAST_S, Sweep
from pkb.judge.settling import why_not
from pkb.platforms.registry import create, pick, traits
from pkb.problems.registry import default_registry
from pkb.store import CandidateFile, Store, TaskSpec
from pkb.types.case import AUTO, Case
from pkb.types.plan import MORE_S

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
LIMIT_S = 240.0
"""Of an evaluation on a GPU, many times what one takes: a lane that is stuck is worth more than one verdict. With times, what
is added to the planned rounds and to the first start of the ranks comes on top."""


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


class Part(NamedTuple):
    plan: str
    tree: Path


def parts_of(plans: Iterable[str], trees: Sequence[Path]) -> list[Part]:
    return [Part(plan, tree) for plan in plans for tree in trees]


class Phase(NamedTuple):
    """What one sweep does."""

    name: str
    """One of `PASSES`."""
    parts: tuple[Part, ...]


def phases(trees: Sequence[Path], plans: Sequence[str], passes: Sequence[str] = PASSES) -> list[Phase]:
    """In the order of worth: tree after tree, by all plans, until nothing but times near 1 is in doubt, since a tree that is
    judged in part decides nothing. CUDA trees come first, in the order in which they were named."""
    trees = sorted(trees, key=lambda tree: not collection_of(tree).endswith(" cuda"))
    order = [Phase(name, tuple(parts_of(plans, [tree]))) for tree in trees for name in ("words", "times", "doubts")]
    order += [Phase(name, tuple(parts_of(plans, trees))) for name in ("near", "reused")]
    return [phase for phase in order if phase.parts and phase.name in passes]


def planned(parts: Iterable[Part], like: Case, known: Known, *, with_paths: bool = False) -> Planned:
    registry, facts = default_registry(), create(like.platform).facts()
    problems = {problem.name: problem.id for problem in registry.all()}
    found = Planned({}, {}, {}, {})
    for plan, tree in parts:
        collection = collection_of(tree)
        read = plan_candidates([tree], problems=problems, like=replace(like, plan=plan))
        counts = found.counts[collection] = {
            "files": len(read.tasks) + len(read.gone) + len(read.refused),
            "gone": len(read.gone),
            "refused": len(read.refused),
            "impossible": 0,
            "empty": sum(not file.source.strip() for file in read.candidates.values()),
            "repeated": 0,
        }
        texts: set[tuple[int, str]] = set()
        if with_paths:
            counts["paths"] = paths_of(read.candidates.values())
        for task in read.tasks:
            problem, file = registry.get(task.problem), read.candidates[task.key]
            if not file.source.strip():  # no answer: counted, and there is nothing to judge
                continue
            case = task.case.resolve(
                problem=problem.stem, platform=facts.name, size=like.size, dtype=problem.default_dtype
            )
            if (
                facts.available and why_not(case, problem, facts) is not None
            ):  # what another machine can do is not known
                counts["impossible"] += 1
                continue
            settled = replace(task, collection=collection, case=case)
            text = (problem.id, sha_of(file))
            if text in texts:  # judged once
                counts["repeated"] += 1
                continue
            texts.add(text)
            before = known.get((collection, plan, *text))
            if before != "":
                found.tasks[settled.key] = settled
                found.files[settled.key] = file
                found.passes[settled.key] = pass_of(before, plan)
    return found


def part_of(work: Planned, name: str, only: Set[int]) -> Planned:
    """The tasks of one pass, in the order of the plans. Multicast, which one GPU does not have, comes last: little is to be
    learned from those files here, and ranks that fault take their time to end."""
    plans = list(dict.fromkeys(task.case.plan for task in work.tasks.values()))
    keys = [
        key
        for key, task in work.tasks.items()
        if work.passes[key] == name and task.problem_id in (only or {task.problem_id})
    ]
    keys.sort(key=lambda key: (b"multimem." in work.files[key].source, plans.index(work.tasks[key].case.plan)))
    return work._replace(tasks={key: work.tasks[key] for key in keys}, files={key: work.files[key] for key in keys})


def settings_for(platform: str, name: str, *, lanes: int, call_limit_s: float | None) -> SweepSettings:
    """Of the pass with this name."""
    settings = SweepSettings(
        call_limit_s=call_limit_s, timing=False if lanes > 1 else None, more_s=0.0 if name == "times" else MORE_S
    )
    if traits(platform).device != "cuda":
        return settings
    return replace(settings, evaluation_limit_s=LIMIT_S + (0.0 if lanes > 1 else 2 * settings.more_s))


def sha_of(file: CandidateFile) -> str:
    return hashlib.sha256(file.source).hexdigest()


def judge(
    work: Planned,
    folder: Path,
    *,
    budget_s: float | None,
    builders: int,
    workers: int | None,
    lanes: int,
    settings: SweepSettings,
    known: Known,
) -> Counter[str]:
    """`lanes`: at a time on each GPU; without times if there are several."""
    platforms = {task.case.platform for task in work.tasks.values()}
    devices = [device for device in seat_devices(platforms) or () if device]
    seats = workers or len(devices) or 1
    print(
        f"{len(work.tasks)} verdicts on {', '.join(platforms)}, {lanes} beside each other"
        + (", not timed" if lanes > 1 else ""),
        file=sys.stderr,
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(alone_in(folder))
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pkb-frontier-")))
        began = time.monotonic()
        store = stack.enter_context(Store(place))
        busy = stack.enter_context(Busy())
        run = store.create_run("sweep", name="frontier", tasks=work.tasks.values(), candidates=work.files)
        watcher = Recorder(
            store, run, folder, total=len(work.tasks), lanes=lanes, known=known, hurried=settings.more_s == 0
        )
        executor = LocalExecutor(seats=seats * lanes, builders=builders, concurrency=1, devices=devices)
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
    write_whole(path, json.dumps([*before, now], indent=1) + "\n")


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
    parser.add_argument("--passes", default=",".join(PASSES), help="of these; the order is `phases`'")
    parser.add_argument(
        "--paths", action="store_true", help="judge nothing, count how the texts move data (tree-sitter)"
    )
    options = parser.parse_args()
    if options.nvls:
        os.environ["PKB_NVLS"] = "1"
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is under way ends in good order
    began = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    like = Case("", pick(options.platform).name, options.ranks, options.size, AUTO)
    have = [*(options.have or [RECORDS]), options.out]
    plans = ["standard"] if options.paths else options.plans.split(",")
    only = {int(number) for number in filter(None, options.only.split(","))}
    counts = Counter[str]()
    all_parts = parts_of(plans, options.trees)
    count_files(options.out, planned(all_parts, like, {}, with_paths=options.paths))
    if options.paths:
        return
    for phase in phases(options.trees, plans, options.passes.split(",")):
        known = known_in(have)
        part = part_of(planned(phase.parts, like, known), phase.name, only)
        budget = None if options.budget is None else options.budget - (time.monotonic() - began)
        if part.tasks and (budget is None or budget > LAST_S):
            print(f"{phase.name}: {', '.join(f'{each.plan} {collection_of(each.tree)}' for each in phase.parts)}",
                  file=sys.stderr)  # fmt: skip
            lanes = options.lanes if phase.name == "words" else 1
            counts += judge(
                part,
                options.out,
                budget_s=budget,
                builders=options.builders,
                workers=options.workers,
                lanes=lanes,
                settings=settings_for(like.platform, phase.name, lanes=lanes, call_limit_s=options.call_limit),
                known=known,
            )
    work = planned(all_parts, like, known_in(have))
    left_by_pass = {name: len(part_of(work, name, only).tasks) for name in PASSES}
    seconds, done = time.monotonic() - began, counts.total()
    print(json.dumps({
        "verdicts": dict(counts), "seconds": round(seconds, 1), "each": round(seconds / done, 2) if done else None,
        "left": left_by_pass,
    }))  # fmt: skip
    sys.exit(3 if any(left_by_pass.values()) else 0)


def count_files(folder: Path, work: Planned) -> None:
    """What the trees hold, beside what was counted before, here or in docs/records: paths are read where tree-sitter is."""
    before, recorded = (
        json.loads(path.read_text()) if path.exists() else {} for path in (folder / COUNTS, RECORDS / COUNTS)
    )
    found = {name: recorded.get(name, {}) | before.get(name, {}) | counts for name, counts in work.counts.items()}
    write_whole(folder / COUNTS, json.dumps(before | found, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted: every verdict so far is kept, and the same command goes on")
