"""What one evaluation costs, stage by stage, and its ratio to the naive way on the same machine.

Naive: one launch of W processes per trial and side, each importing torch and opening its device by itself, each rank building
for itself. That is what a harness made of `torchrun` and a compare script does. It is measured twice: with a build in every
launch, and with builds that each rank keeps from launch to launch. Launches of a kind are alike, so with `--launches 1` one of
each is measured and counted `--trials` times. Our evaluation is measured whole, from nothing built to the verdict, races and
timing included, which the naive way does not even do.

    python benchmarks/evaluation_cost.py [--candidate FILE --problem 1 --platform auto --ranks 4 --trials 5 --launches 5]

With `--before CHECKOUT` (a worktree of an earlier commit) nothing naive is run: `pkb eval` of both takes turns, `--repeats`
times each, on the same machine, candidate and plan, and the ratio of their times is what has changed since. With `--again` each
of them is one process that judges the candidate four times; counted are the last three, as in a sweep, a service or a test run.
"""

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from own_processes import start as start_own

from pkb.judge.crew.sides import build_environment
from pkb.judge.session import evaluate
from pkb.platforms.base import Platform
from pkb.platforms.registry import create, resolve
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.plan import plan

HERE = Path(__file__).parent
LAUNCH_LIMIT_S = 200.0
"""Of one naive launch, with a build in every rank."""


def ours(args: argparse.Namespace, platform: str, *, timing: bool) -> tuple[float, dict[str, float], str]:
    chosen = dataclasses.replace(plan("standard"), trials=args.trials, second_world_trials=0)
    job = Job(
        args.candidate, Case(args.problem, platform, args.ranks, args.size, "bf16", chosen.name), custom_plan=chosen,
        timing=timing,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="pkb-cost-") as cache:
        os.environ["PKB_CACHE"] = str(args.cache or cache)
        start = time.monotonic()
        evaluation = evaluate(job)
        seconds = time.monotonic() - start
        del os.environ["PKB_CACHE"]
    return seconds, evaluation.stage_seconds, str(evaluation.verdict)


def launch(args: argparse.Namespace, platform: Platform, folder: Path, role: str, trial: int) -> float:
    """One launch of W processes, from start to the last exit."""
    start = time.monotonic()
    processes = []
    for rank in range(args.ranks):
        own_build = folder / f"build-{rank}"
        shared = folder / f"shared-{trial}"
        for path in (own_build, shared):
            path.mkdir(exist_ok=True)
        environment = os.environ | platform.environment(args.ranks) | build_environment(platform.facts())
        environment |= {"PKB_BUILD_DIR": str(own_build), "PKB_BUILD_CACHE": str(own_build)}
        command = [
            sys.executable, str(HERE / "naive_rank.py"), "--role", role, "--problem", args.problem, "--size", args.size,
            "--store", str(folder / f"store-{role}-{trial}"), "--candidate", str(args.candidate),
            "--out", str(folder / f"{role}-{trial}-{rank}.pt"), "--shared", str(shared), "--rank", str(rank),
            "--world", str(args.ranks), "--trial", str(trial), "--cuda", str(int(platform.device == "cuda")),
        ]  # fmt: skip
        with (folder / f"said-{rank}").open("wb") as said:
            processes.append(start_own(command, environment, stdout=said, stderr=said))
    bad = first_bad(processes, give_up=start + LAUNCH_LIMIT_S)
    if bad is not None:
        words = (folder / f"said-{bad}").read_text(errors="replace")[-2000:]
        sys.exit(f"the naive {role} failed, rank {bad}:\n{words or f'no end within {LAUNCH_LIMIT_S:.0f} s'}")
    return time.monotonic() - start


def first_bad(processes: list[subprocess.Popen[bytes]], *, give_up: float) -> int | None:
    """None when all have ended well. Else the one that failed first, or the first that has not ended: the others would wait for
    it for as long as a library has patience, and are ended."""
    try:
        while True:
            codes = [process.poll() for process in processes]
            if failed := [rank for rank, code in enumerate(codes) if code]:
                return failed[0]
            if None not in codes:
                return None
            if time.monotonic() > give_up:
                return codes.index(None)
            time.sleep(0.01)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def naive(args: argparse.Namespace, platform: Platform) -> dict[str, list[float]]:
    """Seconds of each kind of launch: the reference, the candidate with a build in each rank, and with what it built before."""
    launches: dict[str, list[float]] = {"reference": [], "candidate, building": [], "candidate, built": []}
    for number in range(args.launches):
        with tempfile.TemporaryDirectory(prefix="pkb-cost-") as scratch:
            folder = Path(scratch)
            launches["reference"].append(launch(args, platform, folder, "reference", 2 * number))
            launches["candidate, building"].append(launch(args, platform, folder, "candidate", 2 * number))
            launches["candidate, built"].append(launch(args, platform, folder, "candidate", 2 * number + 1))
    return launches


def command_seconds(args: argparse.Namespace, platform: str, checkout: Path) -> tuple[float, dict[str, float]]:
    """One `pkb eval` as a user starts it, with nothing built; the seconds of its stages as well."""
    with tempfile.TemporaryDirectory(prefix="pkb-cost-") as scratch:
        verdict = Path(scratch) / "verdict.json"
        command = [
            sys.executable, "-c", "from pkb.cli.main import main; main()", "eval", str(args.candidate.resolve()),
            "--problem", args.problem, "--platform", platform, "--ranks", str(args.ranks), "--size", args.size,
            "--plan", args.plan, "--json", str(verdict),
        ]  # fmt: skip
        environment = os.environ | {"PYTHONPATH": str(checkout.resolve() / "src"), "PKB_CACHE": f"{scratch}/cache"}
        start = time.monotonic()
        done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - start
        if not verdict.exists():
            sys.exit(f"{checkout}: no verdict\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
        document = json.loads(verdict.read_text())
    if document["verdict"] != "correct":
        sys.exit(f"{checkout}: {document['verdict']}: {document['detail']}")
    return seconds, document["stage_seconds"]


AGAIN = """
import json, sys, time
from pathlib import Path
from pkb.judge.session import evaluate
from pkb.types.case import Case
from pkb.types.job import Job
candidate, problem, platform, ranks, size, plan = sys.argv[1:]
job = Job(Path(candidate), Case(problem, platform, int(ranks), size, "bf16", plan), timing=False)
for _ in range(4):
    start = time.monotonic()
    evaluation = evaluate(job)
    print(json.dumps([time.monotonic() - start, evaluation.stage_seconds, str(evaluation.verdict)]))
"""


def again_seconds(args: argparse.Namespace, platform: str, checkout: Path) -> tuple[float, dict[str, float]]:
    """The median of evaluations that follow another in the same process, and its stages."""
    told = (args.candidate.resolve(), args.problem, platform, args.ranks, args.size, args.plan)
    environment = os.environ | {"PYTHONPATH": str(checkout.resolve() / "src")}
    done = subprocess.run(
        [sys.executable, "-c", AGAIN, *map(str, told)], env=environment, capture_output=True, text=True, check=True
    )
    taken = [json.loads(line) for line in done.stdout.splitlines()]
    if any(verdict != "correct" for _, _, verdict in taken):
        sys.exit(f"{checkout}: {taken}")
    seconds, stages, _ = sorted(taken[1:], key=lambda one: one[0])[1]
    return seconds, stages


def compare(args: argparse.Namespace, platform: str) -> None:
    checkouts = {"before": args.before, "now": HERE.parent}
    taken: dict[str, list[tuple[float, dict[str, float]]]] = {name: [] for name in checkouts}
    for number in range(args.repeats):
        for name in sorted(checkouts, reverse=bool(number % 2)):  # drift falls on both alike
            measure = again_seconds if args.again else command_seconds
            taken[name].append(measure(args, platform, checkouts[name]))
            print(f"{name}: {taken[name][-1][0]:.1f} s", flush=True)
    middle = {name: statistics.median(seconds for seconds, _ in runs) for name, runs in taken.items()}
    print(
        f"median {middle['before']:.1f} s before, {middle['now']:.1f} s now: {middle['now'] / middle['before'] - 1:+.0%}"
    )
    for stage in taken["now"][0][1]:
        before, now = (statistics.median(stages.get(stage, 0.0) for _, stages in taken[name]) for name in checkouts)
        print(f"  {stage:12} {before:7.2f} s {now:7.2f} s")
    if args.json:
        args.json.write_text(json.dumps(taken))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    honest = HERE.parent / "src" / "pkb" / "cli" / "demo_candidates" / "1_allreduce_symmetric.py"
    options.add_argument("--candidate", type=Path, default=honest)
    options.add_argument("--problem", default="1")
    options.add_argument("--platform", default="auto")
    options.add_argument("--ranks", type=int, default=4)
    options.add_argument("--size", default="paper")
    options.add_argument("--trials", type=int, default=5)
    options.add_argument("--launches", type=int, default=5)
    options.add_argument("--cache", type=Path, help="an empty folder to build into, kept afterwards")
    options.add_argument("--naive-only", action="store_true", help="what ours costs is known from a sweep")
    options.add_argument("--json", type=Path)
    options.add_argument("--before", type=Path, help="a checkout to compare with")
    options.add_argument("--repeats", type=int, default=3, help="of each, with --before")
    options.add_argument("--plan", default="quick", help="with --before")
    options.add_argument("--again", action="store_true", help="with --before: evaluations that follow others")
    args = options.parse_args()
    name = resolve(args.platform)
    if args.before:
        compare(args, name)
        return
    full: float | None = None
    stages: dict[str, float] = {}
    if not args.naive_only:
        full, stages, verdict = ours(args, name, timing=True)
        print(
            f"{args.candidate.name}: {verdict} on {name} with {args.ranks} ranks, {full:.1f} s in all, races and timing "
            "included"
        )
        for stage, seconds in stages.items():
            print(f"  {stage:12} {seconds:7.2f} s  {100 * seconds / full:5.1f} %")
    platform = create(name)
    platform.start()
    try:
        launches = naive(args, platform)
    finally:
        platform.stop()
    reference, building, built = (statistics.mean(times) for times in launches.values())
    for kind, times in launches.items():
        print(f"naive launch of {args.ranks} ranks, {kind}: {' '.join(f'{seconds:.1f}' for seconds in times)} s")
    every = args.trials * (reference + building)
    once = args.trials * reference + building + (args.trials - 1) * built
    counted = f"{args.trials} trials, {args.launches} launch{'es' * (args.launches > 1)} of each kind measured"
    for way, seconds in (("a build per rank and launch", every), ("a build per rank, kept", once)):
        ratio = f", {seconds / full:.1f} times ours" if full else ""
        print(f"naive, {way}: {seconds:.1f} s{ratio} ({counted})")
    if args.json:
        figures = {"ours_s": full, "stages": stages, "launches": launches, "naive_s": every, "naive_kept_s": once}
        args.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
