"""Sweeps one of the published showcases (72, 81, 82) from small to large: reference, baseline and our kernel at every size.

    python benchmarks/showcase.py 82 --platform virtual --ranks 8 --out out/showcase-82 [--budget SECONDS] [--times-only]
    python benchmarks/showcase.py 82 --platform virtual --budget 0 --out out/s82 --keep docs/records/showcase-82.jsonl \\
        --known docs/records/showcase-82.jsonl --page docs/showcase-82.md    # needs no GPU
    python benchmarks/showcase.py 82 --trial --out out/trial    # a CPU, `tiny` in place of every size, nothing timed

Every size is a separate problem, written to DIR/problems, and a separate evaluation: the kernel must be correct there, its
times are paired with the baseline's, and it is also compared with the reference. `--times-only` compares few calls and looks
for no races, as `verdict_table.py` does. Verdicts are appended to DIR/showcase.jsonl one by one. A size that is already there,
or in a file of `--known`, for the present kernel, kit, problem and baseline is not judged again, so that the same command
continues after an interruption. `--page` replaces everything below the mark in a page, such as docs/showcase-82.md.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from kernel_records import TIMES_ONLY, add_row, read_rows, seconds_of
from verdict_table import times_only

from pkb.candidates.source import read
from pkb.judge.session import evaluate
from pkb.kit.fingerprint import fingerprint
from pkb.platforms.registry import resolve
from pkb.problems import get
from pkb.problems.base import Problem
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.plan import plan

MARK = "<!-- below: made by benchmarks/showcase.py -->"
SOLUTIONS = Path(__file__).parents[1] / "solutions"
Size = dict[str, int]
POINTS: dict[int, dict[str, Size]] = {
    72: {  # by the positions of a rank; the filter is as long as the sequence of eight ranks
        f"{local} positions a rank, {channels} channels": {
            "batch": 1, "groups": channels, "group_dim": 1, "local": local, "filter": 8 * local,
        }
        for local, channels in ((256, 1024), (1024, 1024), (2048, 4096), (8192, 4096), (16384, 4096))
    },
    81: {
        f"{objects} objects a rank, {side} x {side}": {"objects": objects, "height": side, "width": side}
        for objects, side in ((2, 256), (6, 288), (12, 288), (25, 288), (50, 288))
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


def key_of(problem: Problem, label: str, size: Size, ranks: int, platform: str, kernel: str) -> str:
    asked = [problem.id, problem.version, problem.baseline_version, label, size, ranks, platform, kernel]
    return json.dumps(asked, sort_keys=True)


def is_measured(row: dict[str, Any]) -> bool:
    """A verdict on the machine is none on the kernel: it counts as nothing, and takes nothing's place."""
    return bool(row["verdict"]["verdict"] != "harness_error")


def of_earlier_text(done: dict[str, dict[str, Any]], key: str) -> dict[str, Any] | None:
    """The last row of the same shape and baseline, for another text of the kernel, another kit or version of the problem."""

    def shape(asked: str) -> list[Any]:
        problem, _, *others, _ = json.loads(asked)
        return [problem, *others]

    return next((row for at, row in reversed(done.items()) if shape(at) == shape(key)), None)


def cells(row: dict[str, Any]) -> list[str]:
    verdict = row["verdict"]
    timing = verdict["timing"]
    if verdict["verdict"] != "correct" or timing is None:
        return ["", "", "", f"{verdict['verdict']}, not timed", "", ""]
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
        gains.get("baseline", ""), f"{timing['window_speedup']:.2f}" if timing["window_speedup"] else "-",
        gains.get("reference", ""),
    ]  # fmt: skip


def table(rows: list[dict[str, Any]], missing: list[str], older: list[str], platform: str, ranks: int) -> str:
    """Of what was measured, with what it is of."""
    head = ["size", "reference us", "baseline us", "ours us", "against the baseline", "by the window"]
    head.append("against the reference")
    verdicts = [row["verdict"] for row in rows]
    days = sorted({verdict["started_at"][:10] for verdict in verdicts})
    judges = sorted({str((verdict["suite"] or {}).get("judge", "none")) for verdict in verdicts})
    brief = [row["label"] for row in rows if row["verdict"]["plan"] == TIMES_ONLY]
    said = [
        f"Platform `{platform}`, {ranks} ranks, {' and '.join(days)}, judge version {' and '.join(judges)}; 95 % intervals."
    ]
    if brief:
        said.append(f"Times only, for races see [kernels.md](kernels.md): {'; '.join(brief)}.")
    if older:
        said.append(f"Of an earlier text of the kernel or the kit, or version of the problem: {'; '.join(older)}.")
    if missing:
        said.append(f"Not measured yet: {'; '.join(missing)}.")
    lines = [" ".join(said), "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {row['label']} | {' | '.join(cells(row))} |" for row in rows]
    return "\n".join(lines) + "\n"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("problem", type=int, choices=sorted(POINTS))
    options.add_argument("--platform", default="auto")
    options.add_argument("--ranks", type=int, default=8)
    options.add_argument("--trial", action="store_true")
    options.add_argument("--points", type=int, help="only so many, from the smallest")
    options.add_argument("--budget", type=float, default=float("inf"), help="seconds: begin no size that ends later")
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--times-only", action="store_true")
    options.add_argument(
        "--known", type=Path, nargs="*", default=[], help="files of verdicts that need not be reached again"
    )
    options.add_argument("--keep", type=Path, help="write the verdicts of the table into this file, without profiles")
    options.add_argument("--page", type=Path)
    args = options.parse_args()
    if args.trial:
        args.platform, args.ranks = "cpu", 2
    # Nothing will be judged: then a table can be made anywhere.
    platform, problem = args.platform if args.budget <= 0 else resolve(args.platform), get(args.problem)
    kernel = next(SOLUTIONS.glob(f"{problem.id}_*.py"))
    version = f"{read(kernel).sha256} {fingerprint()}"
    args.out.mkdir(parents=True, exist_ok=True)
    path, stop_at = args.out / "showcase.jsonl", time.monotonic() + args.budget
    done = {row["key"]: row for known in (*args.known, path) for row in filter(is_measured, read_rows(known))}
    full = plan("quick" if args.trial else "standard")
    chosen = times_only(full) if args.times_only else full
    rows, missing, older = [], list[str](), list[str]()
    for index, (label, size) in enumerate(list(POINTS[problem.id].items())[: args.points]):
        wanted = dict(problem.sizes["tiny"]) if args.trial else size
        key = key_of(problem, label, wanted, args.ranks, platform, version)
        took = [row["verdict"] for row in done.values() if row["label"] == label]
        if key not in done and time.monotonic() + (seconds_of(took[-1:]) or 0.0) < stop_at:
            stem = write_problem(args.out / "problems", problem, index, label, wanted)
            case = Case(stem, platform, args.ranks, "real", problem.default_dtype, chosen.name)
            job = Job(
                kernel, case, timing=not args.trial, problems_folder=args.out / "problems", profile=False, custom_plan=chosen,
            )  # fmt: skip
            verdict = evaluate(job)
            row = {"key": key, "label": label, "verdict": json.loads(json.dumps(verdict.to_dict(), default=str))}
            add_row(path, row)
            print(f"{label}: {verdict.verdict} {verdict.detail}", flush=True)
            done |= {key: row} if is_measured(row) else {}
        shown = done.get(key) or of_earlier_text(done, key)
        if key not in done:
            (missing if shown is None else older).append(label)
        rows += [shown] if shown else []
    text = table(rows, missing, older, platform, args.ranks) if rows else "Not measured yet.\n"
    print(text)
    if args.keep is not None:
        args.keep.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if args.page is not None:
        before, mark, _ = args.page.read_text().partition(MARK)
        if not mark:
            options.error(f"{args.page} has no line {MARK!r}")
        args.page.write_text(f"{before}{MARK}\n\n{text}")
    wrong = [row for row in rows if row["verdict"]["verdict"] != "correct"]
    print(f"{len(rows)} sizes, {len(wrong)} not correct{'; run again to go on' if missing or older else ''}")
    return 1 if wrong or missing or older else 0


if __name__ == "__main__":
    sys.exit(main())
