"""What a second worker is worth: evaluations per minute of a sweep on this CPU with 1 and with 2 workers, in one run.

    python benchmarks/sweep.py --count 6

The same candidates (all-reduce on symmetric memory, problem 1, size tiny, plan quick) are swept in turns, 1 worker and 2,
2 and 1; starting the sweep and importing the judge is part of it, as it is for a user. One JSON document at the end.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

from pkb.cluster.local import LocalHands
from pkb.cluster.planning import plan_candidates
from pkb.cluster.settings import SweepSettings
from pkb.cluster.sweep import Sweep
from pkb.cluster.tally import tally
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


def rate(folder: Path, root: Path, *, workers: int, ranks: int) -> float:
    """Evaluations per minute of one sweep."""
    like = Case("", "cpu", ranks, "tiny", "bf16", "quick")
    plan = plan_candidates([folder], problems={"allreduce": 1}, like=like)
    with Store(root) as store:
        run = store.create_run("sweep", tasks=plan.tasks, candidates=plan.candidates)
        print(f"{workers} workers, {len(plan.tasks)} evaluations", file=sys.stderr)
        began = time.monotonic()
        hands = LocalHands(seats=workers, builders=0, askers=1)
        Sweep(store, run, hands=hands, settings=SweepSettings(), watcher=Lines()).work()
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
    options = parser.parse_args()
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
