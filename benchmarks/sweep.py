"""How fast a sweep goes: verdicts per hour of a folder of candidates, and the share of the time in which the GPU works.

    python benchmarks/sweep.py --candidates DIR [--platform auto --ranks 4 --size paper --plan standard]
    python benchmarks/evaluation_cost.py --candidate FILE --problem N --launches 1      the naive way, on one of them
    python benchmarks/sweep.py --count 6

The GPU's share is NVML's (of the time, in which at least one kernel ran), sampled five times a second from the first order to
the last verdict. Without `--candidates` it shows what a second worker is worth on a CPU: evaluations per minute with 1 and with
2 workers, in one run. The same candidates (all-reduce on symmetric memory, problem 1, size tiny, plan quick) are swept in
turns, 1 worker and 2, 2 and 1; starting the sweep and importing the judge is part of it, as it is for a user. One JSON document
at the end.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from gpu_share import Busy

from pkb.cli.run_sweep import seat_devices
from pkb.cluster.local import LocalExecutor
from pkb.cluster.planning import plan_candidates
from pkb.cluster.settings import SweepSettings
from pkb.cluster.sweep import Sweep
from pkb.cluster.tally import tally
from pkb.judge.settling import why_not
from pkb.platforms.registry import pick
from pkb.problems.registry import default_registry
from pkb.store import Store, Task
from pkb.types.case import Case

ROOT = Path(__file__).resolve().parents[1]
CANDIDATE = ROOT / "src" / "pkb" / "cli" / "demo_candidates" / "1_allreduce_symmetric.py"


class Lines:
    def stage(self, task: Task, text: str) -> None:
        return

    def judged(self, task: Task, verdict: str, detail: str) -> None:
        print(f"  {task.collection}: {verdict}", file=sys.stderr)

    def failed(self, task: Task, why: str, *, again: bool) -> None:
        print(f"  {task.collection}: {why}", file=sys.stderr)


def whole_folder(options: argparse.Namespace) -> dict[str, object]:
    """One sweep over the candidates of a folder, as `pkb run` does it."""
    registry, facts = default_registry(), pick(options.platform)
    problems = {problem.name: problem.id for problem in registry.all()}
    like = Case("", facts.name, options.ranks, options.size, "bf16", options.plan)
    plan = plan_candidates([options.candidates], problems=problems, like=like)
    tasks = {}
    for task in plan.tasks:
        problem = registry.get(task.problem)
        case = replace(task.case, problem=problem.stem, dtype=problem.default_dtype)
        if why_not(case, problem, facts) is None:
            settled = replace(task, case=case)
            tasks[settled.key] = (settled, plan.candidates[task.key])
    devices = seat_devices([facts.name])
    with tempfile.TemporaryDirectory() as place, Store(Path(place)) as store:
        run = store.create_run(
            "sweep",
            tasks=[task for task, _ in tasks.values()],
            candidates={key: file for key, (_, file) in tasks.items()},
        )
        executor = LocalExecutor(
            seats=len(devices) if devices else 1,
            builders=max(1, len(os.sched_getaffinity(0)) - 1),
            concurrency=1,
            devices=[device for device in devices or () if device],
        )
        began = time.monotonic()
        with Busy() as busy:
            Sweep(
                store, run, executor=executor, settings=SweepSettings(), watcher=Lines(), budget_s=options.budget
            ).work()
        seconds = time.monotonic() - began
        found = tally(store, run)
    done = sum(found.verdicts.values())
    return {
        "case": str(like).strip(),
        "verdicts": found.verdicts,
        "seconds": round(seconds, 1),
        "seconds_each": round(seconds / max(1, done), 2),
        "verdicts_per_hour": round(3600 * done / seconds),
        "gpu_busy": None if busy.share is None else round(busy.share, 3),
    }


def rate(folder: Path, root: Path, *, workers: int, ranks: int) -> float:
    """Evaluations per minute of one sweep."""
    like = Case("", "cpu", ranks, "tiny", "bf16", "quick")
    plan = plan_candidates([folder], problems={"allreduce": 1}, like=like)
    with Store(root) as store:
        run = store.create_run("sweep", tasks=plan.tasks, candidates=plan.candidates)
        print(f"{workers} workers, {len(plan.tasks)} evaluations", file=sys.stderr)
        began = time.monotonic()
        executor = LocalExecutor(seats=workers, builders=0, concurrency=1)
        Sweep(store, run, executor=executor, settings=SweepSettings(), watcher=Lines()).work()
        seconds = time.monotonic() - began
        result = tally(store, run)
    if result.verdicts != {"correct": len(plan.tasks)}:
        sys.exit(f"not every evaluation was right, so the times mean nothing: {result.verdicts}, {result.failed}")
    return 60 * len(plan.tasks) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=6, help="evaluations in each sweep")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2, help="how often each number of workers is tried")
    parser.add_argument("--candidates", type=Path, help="a folder: measure one sweep over it")
    parser.add_argument("--platform", default="auto", help="with --candidates")
    parser.add_argument("--size", default="paper", help="with --candidates")
    parser.add_argument("--plan", default="standard", help="with --candidates")
    parser.add_argument(
        "--budget", type=float, help="with --candidates: stop after so many seconds, and say how it went"
    )
    options = parser.parse_args()
    if options.candidates:
        print(json.dumps(whole_folder(options), indent=2))
        return
    rates: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as place:
        for number in range(options.count):
            file = Path(place, "c", f"{number:02d}", "1_allreduce_torch.py")
            file.parent.mkdir(parents=True)
            file.write_text(f"# {number}\n{CANDIDATE.read_text()}")
        for turn in range(options.rounds):
            for workers in (1, 2) if turn % 2 == 0 else (2, 1):
                rates[workers].append(rate(Path(place, "c"), Path(place, "s"), workers=workers, ranks=options.ranks))
    one, two = (sum(rates[workers]) / len(rates[workers]) for workers in (1, 2))
    document = {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, load before {os.getloadavg()[2]:.1f}",
        "count": options.count,
        "ranks": options.ranks,
        "per_minute": {"1 worker": [round(r, 1) for r in rates[1]], "2 workers": [round(r, 1) for r in rates[2]]},
        "ratio": round(two / one, 2),
    }
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
