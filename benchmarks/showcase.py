"""Sweeps one of the published showcases (72, 81, 82) from small to large: reference, baseline and our kernel at every size.

    python benchmarks/showcase.py 82 --platform virtual --ranks 8 --out out/showcase [--budget SECONDS] [--page FILE]
    python benchmarks/showcase.py 82 --trial --out out/trial      # a CPU, `tiny` in place of every size, nothing timed

Every size is a problem of its own, written to DIR/problems, and a whole evaluation: the kernel must be correct there, its times
are paired with the baseline's, and the reference is read beside them. Verdicts are appended to DIR/showcase.jsonl one by one. A
size that is there already for the present kernel, problem and baseline is not judged again, so that the same command goes on
where it was cut short. `--page` replaces what stands below the mark in a page, such as docs/showcase-82.md.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from pkb.candidates.source import read
from pkb.judge.session import evaluate
from pkb.platforms.registry import resolve
from pkb.problems import get
from pkb.problems.base import Problem
from pkb.types.case import Case
from pkb.types.job import Job

MARK = "<!-- below: made by benchmarks/showcase.py -->"
SOLUTIONS = Path(__file__).parents[1] / "solutions"
Size = dict[str, int]
POINTS: dict[int, dict[str, Size]] = {
    72: {  # by the positions of a rank; the filter is as long as the sequence of eight ranks
        f"{local} positions a rank, {channels} channels": {
            "batch": 1, "groups": channels, "group_dim": 1, "local": local, "filter": 8 * local,
        }
        for local, channels in ((256, 1024), (1024, 1024), (2048, 4096), (4096, 4096), (8192, 4096), (16384, 4096))
    },
    81: {
        f"{objects} objects a rank, {side} x {side}": {"objects": objects, "height": side, "width": side}
        for objects, side in ((2, 256), (6, 288), (12, 288), (25, 288), (50, 288), (100, 288))
    },
    82: {
        f"{4 * seq} tokens": {"batch": 4, "seq": seq, "vocab": 151936, "top_k": 50, "top_p_percent": 95}
        for seq in (2, 16, 64, 256, 1024, 2048)
    },
}  # fmt: skip
MODULE = """\"\"\"{label}: one point of a sweep.\"\"\"

from dataclasses import replace

from pkb.problems import get

ORIGINAL = get({id})
PROBLEM = replace(
    ORIGINAL, id={point}, name="{name}", reference_faster_at=(), sizes=ORIGINAL.sizes | {{"real": {size!r}}}
)
"""


def write_problem(folder: Path, problem: Problem, index: int, label: str, size: Size) -> str:
    """Its stem."""
    point = 1000 * (index + 1) + problem.id
    name = f"{problem.name}_{index}"
    folder.mkdir(parents=True, exist_ok=True)
    text = MODULE.format(label=label, id=problem.id, point=point, name=name, size=size)
    (folder / f"p{point}_{name}.py").write_text(text)
    return f"{point}_{name}"


def read_rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue  # cut off while it was written
    return rows


def key_of(problem: Problem, label: str, size: Size, ranks: int, platform: str, kernel: str) -> str:
    asked = [problem.id, problem.version, problem.baseline_version, label, size, ranks, platform, kernel]
    return json.dumps(asked, sort_keys=True)


def cells(row: dict[str, Any]) -> list[str]:
    verdict = row["verdict"]
    timing = verdict["timing"]
    if verdict["verdict"] != "correct" or timing is None:
        return ["", "", "", f"{verdict['verdict']}, not timed", ""]
    by_function = {timing["against"]: timing["reference_us"]}
    speedups = {timing["against"]: (timing["speedup"], timing["speedup_low"], timing["speedup_high"])}
    if (other := timing["other"]) is not None:
        by_function[other["against"]] = other["us"]
        speedups[other["against"]] = (other["speedup"], other["speedup_low"], other["speedup_high"])
    gains = {name: f"{value:.2f} ({low:.2f} to {high:.2f})" for name, (value, low, high) in speedups.items()}
    if timing["decision"] != "faster":
        gains[timing["against"]] += f", {timing['decision']}"
    us = {name: f"{value:.0f}" if value >= 100 else f"{value:.1f}" for name, value in by_function.items()}
    ours = timing["candidate_us"]
    return [
        us.get("reference", ""), us.get("baseline", ""), f"{ours:.0f}" if ours >= 100 else f"{ours:.1f}",
        gains.get("baseline", ""), gains.get("reference", ""),
    ]  # fmt: skip


def table(rows: list[dict[str, Any]], platform: str, ranks: int) -> str:
    head = ["size", "reference us", "baseline us", "ours us", "against the baseline", "against the reference"]
    lines = [f"Platform `{platform}`, {ranks} ranks; 95 % intervals.", "", f"| {' | '.join(head)} |"]
    lines.append(f"|{'---|' * len(head)}")
    lines += [f"| {row['label']} | {' | '.join(cells(row))} |" for row in rows]
    return "\n".join(lines) + "\n"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("problem", type=int, choices=sorted(POINTS))
    options.add_argument("--platform", default="auto")
    options.add_argument("--ranks", type=int, default=8)
    options.add_argument("--trial", action="store_true")
    options.add_argument("--points", type=int, help="only so many, from the smallest")
    options.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no size is begun")
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--page", type=Path)
    args = options.parse_args()
    if args.trial:
        args.platform, args.ranks = "cpu", 2
    platform, problem = resolve(args.platform), get(args.problem)
    kernel = next(SOLUTIONS.glob(f"{problem.id}_*.py"))
    sha256 = read(kernel).sha256
    args.out.mkdir(parents=True, exist_ok=True)
    path, stop_at = args.out / "showcase.jsonl", time.monotonic() + args.budget
    done = {row["key"]: row for row in read_rows(path)}
    rows, spent = [], False
    for index, (label, size) in enumerate(list(POINTS[problem.id].items())[: args.points]):
        wanted = dict(problem.sizes["tiny"]) if args.trial else size
        key = key_of(problem, label, wanted, args.ranks, platform, sha256)
        if key not in done:
            if spent := time.monotonic() >= stop_at:
                break
            stem = write_problem(args.out / "problems", problem, index, label, wanted)
            case = Case(
                stem, platform, args.ranks, "real", problem.default_dtype, "quick" if args.trial else "standard"
            )
            job = Job(
                kernel, case, timing=not args.trial, problems_folder=args.out / "problems", profile=False,
            )  # fmt: skip
            verdict = evaluate(job)
            done[key] = {"key": key, "label": label, "verdict": json.loads(json.dumps(verdict.to_dict(), default=str))}
            with path.open("a") as file:
                file.write(json.dumps(done[key]) + "\n")
            print(f"{label}: {verdict.verdict} {verdict.detail}", flush=True)
        rows.append(done[key])
    text = table(rows, platform, args.ranks)
    print(text)
    if args.page is not None:
        before, mark, _ = args.page.read_text().partition(MARK)
        if not mark:
            options.error(f"{args.page} has no line {MARK!r}")
        args.page.write_text(f"{before}{MARK}\n\n{text}")
    wrong = [row for row in rows if row["verdict"]["verdict"] != "correct"]
    print(f"{len(rows)} sizes, {len(wrong)} not correct{'; the budget is spent, run again to go on' if spent else ''}")
    return 1 if wrong or spent else 0


if __name__ == "__main__":
    sys.exit(main())
