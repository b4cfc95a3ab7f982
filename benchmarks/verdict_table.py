"""Evaluates candidate files one after another and prints a table of verdicts: for docs, and for a look at a new machine.

    python benchmarks/verdict_table.py solutions/*.py --platform virtual --ranks 4,8 [--size paper,real] [--out table.md]
    python benchmarks/verdict_table.py solutions/*_cuda.py --ranks 4,8 --times-only --known kernels.jsonl --out table.md

The problem is taken from a file's name, or from a `# problem:` line in it. With `--out`, every verdict is written as soon as it
is there, and what is there already, or in a file of `--known`, is not judged again: the same file, case, kind of run, versions
of problem and baseline, and judge. All sizes of a file share one start of its ranks.

Where GPU time is short, one run takes times and another judges. `--times-only` looks for no races and makes two calls for
correctness: its verdicts say so, and are no verdicts of the plan. Those come from `--no-timing`. Evaluations take turns on a
device, for the sake of their times; with `--no-timing` and sizes that leave room for others in its memory, several of these can
run beside each other, each with a `PKB_LOCK_DIR` and an `--out` of its own.
"""

import argparse
import dataclasses
import itertools
import json
import re
import sys
import time
from pathlib import Path
from typing import NamedTuple

from pkb.candidates.source import read
from pkb.judge.session import evaluate_sizes
from pkb.platforms.registry import resolve
from pkb.problems import get
from pkb.problems.suite import suite
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.plan import Plan, plan
from pkb.types.stock import AGAINST
from pkb.types.verdict import Evaluation, Verdict

TIMES_ONLY = "times-only"
NO_RACES = "races not looked for, and few calls compared: times only"


def problem_of(path: Path) -> str:
    said = re.search(r"^# problem: *(\w+)", path.read_text(), re.MULTILINE)
    if said:
        return said[1]
    return path.name.split("_", 1)[0]


def expected_of(path: Path) -> str:
    said = re.search(r"^# expect: *(.+)$", path.read_text(), re.MULTILINE)
    return said[1].strip() if said else "correct"


def row(path: Path, result: Evaluation, seconds: float) -> str:
    timing = result.timing
    times = "| | | |"
    if timing is not None:
        times = (
            f"| {timing.reference_us:.1f} | {timing.candidate_us:.1f} | "
            f"{timing.speedup:.2f} ({timing.speedup_low:.2f}-{timing.speedup_high:.2f}), {timing.decision} |"
        )
    return (
        f"| {path.stem} | {result.problem.id} | {result.ranks} | {result.size} | {result.verdict} | "
        f"{result.communication} {times} {seconds:.0f} |"
    )


def times_only(full: Plan) -> Plan:
    """Timed as the full plan does it, of a candidate that it judges in another run."""
    return dataclasses.replace(
        full,
        name=TIMES_ONLY,
        trials=2,
        odd_trials=0,
        second_world_trials=0,
        race_calls=0,
        race_repeats=0,
        race_traces=0,
    )


class Done(NamedTuple):
    """What makes two evaluations the same one."""

    sha256: str
    ranks: int
    size: str
    plan: str
    timed: bool
    versions: tuple[int, int | None, int | None]
    """Of the question, of what it was timed against, of the judge."""


def done_in(paths: list[Path]) -> set[Done]:
    """A verdict on the machine is none on the candidate. Whoever was timed was judged too, and a failure will have no times."""
    done: set[Done] = set()
    for row in (json.loads(line) for path in paths if path.exists() for line in path.read_text().splitlines() if line):
        if row["verdict"] == "harness_error":
            continue
        judge = (row.get("suite") or {}).get("judge")
        versions = (row["problem"]["version"], row["problem"].get("baseline_version"), judge)
        case = (row["candidate"]["sha256"], row["ranks"], row["size"], row["plan"])
        timed = row["timing"] is not None or not Verdict(row["verdict"]).is_timed
        done |= {Done(*case, with_times, versions) for with_times in {timed, False}}
    return done


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("files", nargs="+", type=Path)
    options.add_argument("--platform", default="auto")
    options.add_argument("--ranks", default="4")
    options.add_argument("--size", default="paper")
    options.add_argument("--plan", default="standard")
    options.add_argument("--rounds", type=int, help="of timing, in place of the plan's")
    options.add_argument("--call-limit", type=float, default=20.0)
    options.add_argument("--no-second-world", action="store_true")
    how = options.add_mutually_exclusive_group()
    how.add_argument("--no-timing", action="store_true")
    how.add_argument("--times-only", action="store_true", help="no races, few calls compared, no profile")
    options.add_argument("--no-profile", action="store_true")
    options.add_argument(
        "--known", type=Path, nargs="*", default=[], help="files of verdicts that need not be reached again"
    )
    options.add_argument("--against", choices=AGAINST, default="baseline")
    options.add_argument(
        "--limit", type=float, default=1e9, help="begin with no further file and ranks after so many seconds"
    )
    options.add_argument(
        "--out", type=Path, help="write the table as Markdown and the verdicts as JSON lines beside it"
    )
    args = options.parse_args()
    platform = resolve(args.platform)
    chosen = plan(args.plan)
    if args.no_second_world:
        chosen = dataclasses.replace(chosen, second_world_trials=0)
    if args.rounds is not None:
        chosen = dataclasses.replace(chosen, timing_rounds=args.rounds)
    if args.times_only:
        chosen = times_only(chosen)
    lines = [
        "| candidate | problem | ranks | size | verdict | communication | reference us | candidate us | speedup | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    record = args.out.with_suffix(".jsonl") if args.out else None
    done = done_in([*args.known, *([record] if record else [])])
    begun = time.monotonic()
    surprises = judged = 0
    for ranks, path in itertools.product(map(int, args.ranks.split(",")), args.files):
        problem = get(problem_of(path))
        dtype, sha256 = problem.default_dtype, read(path).sha256
        baseline_version = problem.baseline_version if problem.baseline is not None else None
        versions = (problem.version, baseline_version, suite().judge_version)
        sizes = [
            size
            for size in args.size.split(",")
            if not problem.why_not(size, ranks, dtype)
            and Done(sha256, ranks, size, chosen.name, not args.no_timing, versions) not in done
        ]
        if not sizes:
            continue
        if time.monotonic() - begun > args.limit:
            print(f"stopped after {args.limit:.0f} s; the next was {path.name}, {','.join(sizes)}, {ranks} ranks")
            break
        job = Job(
            candidate=path,
            case=Case(problem.stem, platform, ranks, sizes[0], dtype, chosen.name),
            custom_plan=chosen,
            against=args.against,
            timing=not args.no_timing,  # on a CPU too, where nothing is timed unless somebody asks
            call_limit_s=args.call_limit,
            profile=not (args.times_only or args.no_profile),
        )
        start = time.monotonic()
        for result in evaluate_sizes(job, sizes):
            if args.times_only:
                result = dataclasses.replace(result, checks=(*result.checks, NO_RACES))
            judged += 1
            lines.append(row(path, result, time.monotonic() - start))
            start = time.monotonic()
            surprise = str(result.verdict) not in [word.strip() for word in expected_of(path).split("|")]
            surprises += surprise
            print(lines[-1], f"  <-- {result.detail}" if surprise or result.verdict != "correct" else "", flush=True)
            if surprise:
                failure = result.failure
                print(
                    f"    expected {expected_of(path)}; {failure.trace[-1500:] if failure else ''}\n"
                    f"{result.output_tail[-600:]}"
                )
            if args.out and record:
                args.out.write_text("\n".join(lines) + "\n")
                with record.open("a") as file:
                    file.write(json.dumps(result.to_dict(), default=str) + "\n")
    print(f"{judged} evaluations, {surprises} with another verdict than expected")
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
