"""Judges the project's own candidates (tests/adversaries and solutions/) into a store, for `make report`.

It uses plan quick, size tiny and two ranks unless a file asks for others. It can be stopped at any moment and continues when
it is started again, as long as no candidate has changed. The last line on standard output is the run's id.
"""

import argparse
import hashlib
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import typer

from pkb.cli.run_sweep import SweepWorkers, carry_on
from pkb.cluster.settings import SweepSettings
from pkb.platforms.registry import resolve, traits
from pkb.problems.registry import default_registry
from pkb.store import CandidateFile, Run, Store, TaskSpec
from pkb.store.importing import read_name
from pkb.types.case import AUTO, Case

ROOT = Path(__file__).resolve().parents[1]
NAME = "own-suite"
RANKS = 2
FIELD = re.compile(r"^# (\w+): (.+)$", re.MULTILINE)
NEEDS_MORE = ("slow", "memory_limit_gib")
"""Files that say so need minutes, or a limit of memory that a sweep does not set: the test suite judges those."""


class Own(NamedTuple):
    path: Path
    collection: str
    backend: str
    case: Case


def adversaries(platform: str) -> Iterator[Own]:
    """A file's comment block says which problem it is for and what it needs."""
    registry = default_registry()
    for folder in ("honest", "mistakes", "faults", "cheats", "gpu"):
        for path in sorted((ROOT / "tests" / "adversaries" / folder).glob("*.py")):
            said = dict(FIELD.findall(path.read_text(encoding="utf-8").partition('"""\n')[2].split("\n\n", 1)[0]))
            where = "cpu" if said["platform"] == "cpu" else platform
            if said["plan"] != "quick" or any(field in said for field in NEEDS_MORE):
                continue  # a cheat against the clock, judged without one, would only look as if it had got through
            if (where == "cpu") == (said["platform"] == "cpu"):
                backend = "triton" if "triton" in path.stem else "torch" if where == "cpu" else "cuda"
                stem, size, dtype = (
                    registry.get(said["problem"]).stem,
                    said.get("size", "tiny"),
                    said.get("dtype", AUTO),
                )
                yield Own(
                    path, f"adversaries, {folder}", backend,
                    Case(stem, where, int(said["ranks"]), size, dtype, plan="quick"),
                )  # fmt: skip


def kernels(platform: str) -> Iterator[Own]:
    registry = default_registry()
    names = {registry.get(number).name: number for number in registry.ids()}
    for path in sorted((ROOT / "solutions").glob("*.py")):
        named = read_name(path.stem, problems=names)
        yield Own(path, "solutions", named.backend, Case(named.stem, platform, RANKS, "tiny", plan="quick"))


def plan(platform: str) -> tuple[list[TaskSpec], dict[str, CandidateFile]]:
    registry = default_registry()
    tries: Counter[tuple[str, str]] = Counter()
    tasks, files = [], {}
    for own in [*kernels(platform), *adversaries(platform)]:
        case, problem = own.case, registry.get(own.case.problem)
        sample = tries[own.collection, case.problem]
        tries[own.collection, case.problem] += 1
        case = case.resolve(problem=problem.stem, platform=case.platform, size="tiny", dtype=problem.default_dtype)
        task = TaskSpec(collection=own.collection, case=case, backend=own.backend, sample=sample)
        if problem.why_not(case.size, case.ranks, case.dtype) is None:
            tasks.append(task)
            origin = str(own.path.relative_to(ROOT))
            files[task.key] = CandidateFile(source=own.path.read_bytes(), filename=own.path.name, origin=origin)
    return tasks, files


def open_run(store: Store, platform: str) -> Run:
    """The stored run if it is of the same candidates, else a new one."""
    tasks, files = plan(platform)
    digest = hashlib.sha256()
    for task in tasks:
        digest.update(f"{task.key}\n".encode() + files[task.key].source)
    for run in store.runs():
        if run.name == NAME and run.config.get("suite") == digest.hexdigest():
            return run
    settings = SweepSettings(timing=False, call_limit_s=15.0, evaluation_limit_s=180.0)
    config = {"suite": digest.hexdigest(), "settings": settings.to_dict()}
    note = "the project's own adversaries and kernels: most are meant to fail"
    return store.create_run("sweep", name=NAME, note=note, config=config, tasks=tasks, candidates=files)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, default=ROOT / "out" / "store")
    parser.add_argument("--workers", type=int, default=max(1, len(os.sched_getaffinity(0))))
    asked = parser.parse_args()
    platform = resolve("auto")
    asked.store.parent.mkdir(parents=True, exist_ok=True)
    with Store(asked.store) as store:
        run = open_run(store, platform)
    # Ranks are processes; several evaluations at a time suit a CPU, a GPU does one.
    workers = asked.workers if traits(platform).device == "cpu" else 1
    tally = carry_on(run.id, store=asked.store, work=SweepWorkers(workers=workers, builders=1))
    print(f"{sum(tally.verdicts.values())} verdicts: {dict(tally.verdicts)}", file=sys.stderr)
    print(run.id)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except typer.Exit as end:  # interrupted: how to go on has been said
        sys.exit(end.exit_code)
