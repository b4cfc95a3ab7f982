"""Makes the tables of docs/kernels.md from verdicts on our own kernels: times by size and ranks, and which cases were judged.

    python benchmarks/verdict_table.py solutions/*.py --ranks 8,4 --size paper,real --out out/kernels.md
    python benchmarks/kernel_report.py docs/records/kernels.jsonl out/kernels.jsonl --keep docs/records/kernels.jsonl \\
        --hardware docs/records/h200-virtual.toml --page docs/kernels.md

    python benchmarks/kernel_report.py out/again-*.jsonl --again

Utilisation is the bound by what `pkb probe` reached on the same machine over the time, so 100 % is what that machine has been
seen to do. Whatever stands below the mark in the page is replaced. Verdicts on a file that has changed since say so. `--again`
prints instead what the same candidates got each time that they were judged: a file of verdicts for each time.
"""

import argparse
import json
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from pkb.candidates import source
from pkb.problems import get
from pkb.roofline.hardware import load
from pkb.roofline.rows import bounds_row
from pkb.types.hardware import Hardware

MARK = "<!-- below: made by benchmarks/kernel_report.py -->"
Row = dict[str, Any]
Case = tuple[int, str, int]
OTHER_SHAPES = {(72, "real"): 3}
"""The version of a problem since which a size has other shapes: older times are of another call, whose bound is not known."""
SOLUTIONS = Path(__file__).parents[1] / "solutions"


def case_of(row: Row) -> Case:
    return row["problem"]["id"], row["size"], row["ranks"]


def kept(paths: list[Path]) -> list[Row]:
    """What these tables need of all verdicts: of each case the last, and before it the one whose times it takes over (both
    good, the last without times). Without profiles, which are large."""
    cases: dict[Case, list[Row]] = {}
    for row in (json.loads(line) for path in paths for line in path.read_text().splitlines() if line):
        rows = cases.setdefault(case_of(row), [])
        timed = [one for one in rows if fine(one) and one["timing"]][-1:] if fine(row) and not row["timing"] else []
        rows[:] = [*timed, {name: value for name, value in row.items() if name != "profile"}]
    return [row for case in sorted(cases) for row in cases[case]]


def read(paths: list[Path]) -> dict[Case, Row]:
    """The last verdict of each case, with the times that it takes over and the version that they are of."""
    rows: dict[Case, Row] = {}
    for row in kept(paths):
        timed = row if row["timing"] else rows.get(case_of(row), row)
        rows[case_of(row)] = row | {"timing": timed["timing"], "timed": timed["candidate"]}
    return rows


@cache
def present_version(file: str) -> str:
    path = SOLUTIONS / file
    return source.read(path).sha256 if path.exists() else ""


def changed_since(version: dict[str, str]) -> bool:
    return version["sha256"] != present_version(version["file"])


def other_shapes(row: Row) -> bool:
    return int(row["problem"]["version"]) < OTHER_SHAPES.get((row["problem"]["id"], row["size"]), 0)


def utilisation(row: Row, hardware: Hardware) -> str:
    if other_shapes(row):
        return "-"
    case = {"size": row["size"], "ranks": row["ranks"], "dtype": row["dtype"], "hardware": hardware}
    bound = bounds_row(get(row["problem"]["id"]), ceilings="reachable", **case).bound_us
    return f"{float(bound / row['timing']['candidate_us']):.1%}"


def cells(row: Row, hardware: Hardware) -> list[str]:
    if not fine(row) or not row["timing"]:
        return [f"{row['verdict']}, communication {row['communication']}", "", "", ""]
    t = row["timing"]
    speedup = f"{t['speedup']:.2f} ({t['speedup_low']:.2f} to {t['speedup_high']:.2f})"
    if t["decision"] != "faster":
        speedup += f", {t['decision']}"
    if changed_since(row["timed"]):
        speedup += ", an earlier version"
    if other_shapes(row):
        speedup += ", earlier shapes of this size"
    return [number(t["reference_us"]), number(t["candidate_us"]), speedup, utilisation(row, hardware)]


def number(us: float) -> str:
    return f"{us:.0f}" if us >= 100 else f"{us:.1f}"


def page(rows: dict[Case, Row], hardware: Hardware) -> str:
    lines = []
    for size in ("paper", "real"):
        for ranks in (8, 4):
            here = {problem: row for (problem, s, r), row in rows.items() if (s, r) == (size, ranks)}
            if not here:
                continue
            present = [row for row in here.values() if not changed_since(row["timed"])]
            times = [row["timing"] for row in present if fine(row) and row["timing"]]
            faster = sum(t["speedup_low"] > 1 for t in times)
            confirmed = sum(t["decision"] == "faster" for t in times)
            lines += [
                f"## Size `{size}`, {ranks} ranks",
                "",
                f"{len(here)} judged, {len(times)} of them timed in this version. The interval lies above 1 for {faster} of "
                f"those; the host wall clock confirms {confirmed}.",
                "",
                "| kernel | PyTorch + NCCL us | ours us | speedup (95 % interval) | of what the probe reached |",
                "|---|---|---|---|---|",
            ]
            for problem in sorted(here):
                lines.append(f"| {get(problem).stem} | {' | '.join(cells(here[problem], hardware))} |")
            lines.append("")
    return "\n".join([*lines, *judged(rows), ""])


def judged(rows: dict[Case, Row]) -> list[str]:
    """Which cases were judged, kernel by kernel, and what came out where it was not `correct` and `custom`."""
    good = sum(fine(row) for row in rows.values())
    old = sum(changed_since(row["candidate"]) for row in rows.values())
    said = f"{len(rows)} cases, {good} of them `correct` with communication `custom`"
    lines = ["## Cases judged", "", f"{said}; {old} of kernels that have changed since.", ""]
    lines += ["| kernel | 2 ranks | 4 ranks | 8 ranks |", "|---|---|---|---|"]
    for problem in sorted({problem for problem, _, _ in rows}):
        cells = [sizes_judged(rows, problem, ranks) for ranks in (2, 4, 8)]
        lines.append(f"| {get(problem).stem} | {' | '.join(cells)} |")
    return lines


def sizes_judged(rows: dict[Case, Row], number: int, ranks: int) -> str:
    problem, words = get(number), []
    for size in ("tiny", "odd", "paper", "real"):
        row = rows.get((number, size, ranks))
        if problem.why_not(size, ranks, problem.default_dtype):
            words.append(f"({size}: not possible)")
        elif row is not None:
            said = size if fine(row) else f"**{size}: {row['verdict']}, {row['communication']}**"
            words.append(f"{said} (an earlier version)" if changed_since(row["candidate"]) else said)
    return ", ".join(words)


def fine(row: Row) -> bool:
    return bool(row["verdict"] == "correct" and row["communication"] == "custom")


def again(paths: list[Path]) -> tuple[str, bool]:
    """A table of what came out each time, and whether that was one verdict and one decision for each."""
    cases: dict[tuple[str, str, int], list[Row]] = {}
    for path in paths:
        for row in map(json.loads, path.read_text().splitlines()):
            cases.setdefault((row["candidate"]["file"], row["size"], row["ranks"]), []).append(row)
    lines = ["| candidate | size | ranks | times | verdicts | decisions | speedups | by the window |", "|---" * 8 + "|"]
    one_each = True
    for (file, size, ranks), rows in sorted(cases.items()):
        times = [row["timing"] for row in rows if row["timing"]]
        verdicts, decisions = Counter(row["verdict"] for row in rows), Counter(t["decision"] for t in times)
        one_each &= len(verdicts) == 1 and len(decisions) <= 1
        speedups, windows = ([t[name] for t in times if t[name]] for name in ("speedup", "window_speedup"))
        cells = [
            file,
            size,
            str(ranks),
            str(len(rows)),
            *map(counted, (verdicts, decisions)),
            spread(speedups),
            spread(windows),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines), one_each


def counted(words: Counter[str]) -> str:
    return ", ".join(f"{word} {count}" for word, count in words.most_common())


def spread(ratios: list[float]) -> str:
    if not ratios:
        return ""
    apart = max(ratios) / min(ratios) - 1
    return f"{min(ratios):.3f} to {max(ratios):.3f} ({apart:.1%} apart)"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("verdicts", nargs="+", type=Path)
    options.add_argument("--hardware", help="the file that `pkb probe` wrote on that machine")
    options.add_argument("--again", action="store_true", help="what each candidate got each time that it was judged")
    options.add_argument("--keep", type=Path, help="write what the tables need of all these verdicts into this file")
    options.add_argument("--page", type=Path, help="replace what stands below the mark in this file; default: print")
    args = options.parse_args()
    if args.again:
        text, one_each = again(args.verdicts)
        print(text)
        return 0 if one_each else 1
    if not args.hardware:
        options.error("the tables need --hardware")
    if args.keep is not None:
        args.keep.write_text("".join(json.dumps(row) + "\n" for row in kept(args.verdicts)))
    text = page(read([args.keep] if args.keep else args.verdicts), load(args.hardware))
    if args.page is None:
        print(text)
        return 0
    before, mark, _ = args.page.read_text().partition(MARK)
    if not mark:
        print(f"{args.page} has no line {MARK!r}", file=sys.stderr)
        return 2
    args.page.write_text(f"{before}{MARK}\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
