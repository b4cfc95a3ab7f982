"""Evaluates candidate files one after another and prints a table of verdicts, for docs or for a first look at a new machine.

    python benchmarks/verdict_table.py solutions/*.py --platform virtual --ranks 4,8 [--size paper,real] [--out table.md]
    python benchmarks/verdict_table.py solutions/*_cuda.py --ranks 4,8 --times-only --known kernels.jsonl --out table.md

The problem comes from a file's name, or from a `# problem:` line in it. With `--out`, every verdict is written at once, and
cases that are already there, or in a file of `--known`, are not judged again: the same file, kit, case, kind of run, versions
of problem and baseline, and a judge that takes the same samples, or without times one that judges alike. All sizes of a file
share one start of its ranks.

If GPU time is short, take times in one run and judge in another. `--times-only` looks for no races, makes two calls for
correctness and does not observe what moves the data; its verdicts say so, and do not count as verdicts of the plan. Those come
from `--no-timing`. Evaluations take turns on a device, for the sake of their times. With `--no-timing --lanes 4` up to four
run at a time, as many as fit into the device's memory (`lanes.py`), and large sizes of a file have their own start.
"""

import argparse
import dataclasses
import itertools
import re
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kernel_records import (
    TIMES_ONLY,
    Tries,
    add_row,
    comparing,
    expected_s,
    judge_of,
    kit_of,
    lacks_starts,
    read_rows,
    sampling,
)  # fmt: skip
from kernel_records import Case as KernelCase
from lanes import Judged, Work, judge_beside, judge_sizes

from pkb.candidates.source import read
from pkb.kit.fingerprint import fingerprint
from pkb.platforms.registry import resolve
from pkb.problems import get
from pkb.problems.suite import suite
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.plan import Plan, plan
from pkb.types.stock import AGAINST
from pkb.types.verdict import Evaluation, Verdict

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
        observe=False,
    )


class Done(NamedTuple):
    """What makes two evaluations the same one."""

    sha256: str
    kit: str
    platform: str
    ranks: int
    size: str
    plan: str
    timed: bool
    versions: tuple[int, int | None, int]
    """Of the question, of what it was timed against, of the first judge that takes the same samples; without times, of the
    first that judges alike."""


def done_in(paths: list[Path]) -> set[Done]:
    """A verdict on the machine is none on the candidate. Whoever was timed was judged too, and a failure will have no times."""
    done: set[Done] = set()
    for row in (row for path in paths for row in read_rows(path)):
        if row["verdict"] == "harness_error":
            continue
        of_problem = (row["problem"]["version"], row["problem"].get("baseline_version"))
        case = (row["candidate"]["sha256"], kit_of(row), row["platform"], row["ranks"], row["size"], row["plan"])
        has_times = row["timing"] is not None and not lacks_starts(row, suite().judge_version)
        timed = has_times or not Verdict(row["verdict"]).is_timed
        done |= {
            Done(*case, with_times, (*of_problem, judge_for(judge_of(row), timed=with_times)))
            for with_times in {timed, False}
        }
    return done


def judge_for(judge: int, *, timed: bool) -> int:
    return sampling(judge) if timed else comparing(judge)


def owed(
    files: Iterable[Path], ranks: Iterable[int], sizes: Iterable[str], chosen: Plan, *, platform: str, timed: bool,
    done: set[Done],
) -> dict[tuple[int, Path], tuple[str, ...]]:  # fmt: skip
    """Sizes that are possible and not done, by ranks and file."""
    found = {}
    for count, path in itertools.product(ranks, files):
        problem, sha256 = get(problem_of(path)), read(path).sha256
        baseline_version = problem.baseline_version if problem.baseline is not None else None
        versions = (problem.version, baseline_version, judge_for(suite().judge_version, timed=timed))
        left = tuple(
            size
            for size in sizes
            if not problem.why_not(size, count, problem.default_dtype)
            and Done(sha256, fingerprint(), platform, count, size, chosen.name, timed, versions) not in done
        )
        if left:
            found[count, path] = left
    return found


def judge_in_turn(works: list[Work], stop_at: float) -> Iterator[Judged]:
    """One after another. A judge that fails at one file costs no other: the next run would fail there again."""
    tries = Tries()
    for work in works:
        start, left = time.monotonic(), list(work.sizes)
        try:
            for result in judge_sizes(work, stop_at):
                left.remove(result.size)
                yield Judged(work, result.size, result, time.monotonic() - start)
                tries.gave(result.verdict)
                start = time.monotonic()
        except Exception:
            why = traceback.format_exc()[-1500:]
            yield from (Judged(work, size, why, time.monotonic() - start) for size in left)
            tries.gave(None)


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
    options.add_argument("--lanes", type=int, default=1, help="judge so many beside each other; with --no-timing")
    options.add_argument("--no-profile", action="store_true")
    options.add_argument(
        "--known", type=Path, nargs="*", default=[], help="files of verdicts that need not be reached again"
    )
    options.add_argument("--against", choices=AGAINST, default="baseline")
    options.add_argument(
        "--limit",
        type=float,
        default=1e9,
        help="seconds: begin nothing that would not have ended then, as far as is known",
    )
    options.add_argument(
        "--took", type=Path, nargs="*", default=[], help="files of verdicts that say how long one takes, beside --known"
    )
    options.add_argument(
        "--out", type=Path, help="write the table as Markdown and the verdicts as JSON lines beside it"
    )
    args = options.parse_args()
    if args.lanes > 1 and not args.no_timing:
        options.error("what is timed must be alone: --lanes goes with --no-timing")
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
    there = [*args.known, *([record] if record else [])]
    done = done_in(there)
    took = [row for path in (*args.took, *there) for row in read_rows(path)]
    stop_at = time.monotonic() + args.limit
    ranks, sizes = map(int, args.ranks.split(",")), args.size.split(",")
    works = []
    timed = not args.no_timing
    for (count, path), left in owed(
        args.files, ranks, sizes, chosen, platform=platform, timed=timed, done=done
    ).items():
        problem = get(problem_of(path))
        job = Job(
            candidate=path,
            case=Case(problem.stem, platform, count, left[0], problem.default_dtype, chosen.name),
            custom_plan=chosen,
            against=args.against,
            timing=timed,  # on a CPU too, where nothing is timed unless somebody asks
            call_limit_s=args.call_limit,
            profile=not (args.times_only or args.no_profile),
        )
        expected = {
            size: seconds
            for size in left
            if (seconds := expected_s(took, KernelCase(problem.id, size, count), timed=timed)) is not None
        }
        works.append(Work(job, left, expected_s=expected))
    wanted, surprises, judged, silent = sum(len(work.sizes) for work in works), 0, 0, 0
    in_lanes = args.lanes > 1 and len(works) > 1
    judging = (
        judge_beside(works, lanes=args.lanes, platform=platform, stop_at=stop_at)
        if in_lanes
        else judge_in_turn(works, stop_at)
    )
    for work, size, result, seconds in judging:
        path = work.job.candidate
        if isinstance(result, str):
            surprises, silent = surprises + 1, silent + 1
            print(f"{path.stem}, {size}, {work.job.case.ranks} ranks: no verdict: {result}", flush=True)
            continue
        if args.times_only:
            result = dataclasses.replace(result, checks=(*result.checks, NO_RACES))
        judged += 1
        lines.append(row(path, result, seconds))
        surprise = str(result.verdict) not in [word.strip() for word in expected_of(path).split("|")]
        surprises += surprise
        print(
            f"{lines[-1]} {judged} of {wanted}",
            f"  <-- {result.detail}" if surprise or result.verdict != "correct" else "",
            flush=True,
        )
        if surprise:
            failure = result.failure
            print(
                f"    expected {expected_of(path)}; {failure.trace[-1500:] if failure else ''}\n{result.output_tail[-600:]}"
            )
        if args.out and record:
            args.out.write_text("\n".join(lines) + "\n")
            add_row(record, result.to_dict())
    if left_over := wanted - judged - silent:
        print(f"{left_over} are left: they would not have ended within {args.limit:.0f} s")
    print(f"{judged} evaluations, {surprises} with another verdict than expected")
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
