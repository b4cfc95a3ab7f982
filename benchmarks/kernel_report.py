"""Makes the tables of docs/kernels.md from verdicts on our own kernels: times by size and ranks, and which cases were judged.

    python benchmarks/verdict_table.py solutions/*_cuda.py --ranks 4,8 --size paper,real --times-only \\
        --known docs/records/kernels.jsonl --out out/a.md
    python benchmarks/verdict_table.py solutions/*_cuda.py --ranks 4,8,2 --size tiny,odd,paper,real --no-timing \\
        --no-second-world --lanes 4 --known docs/records/kernels.jsonl --out out/b.md
    python benchmarks/kernel_report.py docs/records/kernels.jsonl out/a.jsonl out/b.jsonl \\
        --keep docs/records/kernels.jsonl --hardware docs/records/h200-virtual.toml --page docs/kernels.md

    python benchmarks/kernel_report.py out/again-*.jsonl --again

A row joins the verdict of the whole plan with the times of the same text of the kernel, problem and judge, and says what is
missing or older (`kernel_records.py` decides which verdicts count, and which judges are equivalent). Utilisation is the bound,
from what `pkb probe` reached on the same machine, divided by the time, so 100 % is the best that this machine has shown.
Everything below the mark in the page is replaced. `--again` instead prints what the same candidates got each time that they
were judged: one file of verdicts per time.
"""

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from kernel_records import (
    Case,
    Known,
    Row,
    anew_words,
    concluded,
    earlier,
    judge_of,
    judge_words,
    judges_words,
    kept,
    newest_judge,
    read,
    read_rows,
    sampling,
    taken_at,
)

from pkb.problems import get
from pkb.roofline.hardware import load
from pkb.roofline.rows import bounds_row
from pkb.types.hardware import Hardware

MARK = "<!-- below: made by benchmarks/kernel_report.py -->"
OTHER_SHAPES = {(72, "real"): 3}
"""The version of a problem since which a size has other shapes: older times are of another call, whose bound is not known."""
TIMED = [(size, ranks) for size in ("paper", "real") for ranks in (4, 8)]
SLOWER = 1.03
"""Nothing may have become slower by more."""


class Reading(NamedTuple):
    """Of a candidate against one of the problem's two functions."""

    us: float
    """Of that function."""
    speedup: float
    low: float
    high: float
    decision: str

    @property
    def words(self) -> str:
        return f"{interval(self.speedup, self.low, self.high)}, {self.decision}"


def readings(row: Row) -> dict[str, Reading]:
    """By function; verdicts from before there were baselines were timed against the reference."""
    timing = concluded(row)
    said = (timing.get("reference_us"), timing["speedup"], timing["speedup_low"], timing["speedup_high"])
    found = {timing.get("against", "reference"): Reading(*said, timing["decision"])}
    if other := timing.get("other"):
        said = (other["us"], other["speedup"], other["speedup_low"], other["speedup_high"])
        found[other["against"]] = Reading(*said, other["decision"])
    if not get(row["problem"]["id"]).has_baseline_at(row["size"]) and "reference" in found:
        found["baseline"] = found["reference"]
    return found


def interval(value: float, low: float | None, high: float | None) -> str:
    ends = ["-" if end is None else f"{end:.2f}" for end in (low, high)]
    return f"{value:.2f} ({ends[0]} to {'no end' if high is None else ends[1]})"


def number(us: float) -> str:
    return f"{us:.0f}" if us >= 100 else f"{us:.1f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


# -- times ---------------------------------------------------------------------------------------------------------------


def other_shapes(row: Row) -> bool:
    return int(row["problem"]["version"]) < OTHER_SHAPES.get((row["problem"]["id"], row["size"]), 0)


def utilisation(row: Row, hardware: Hardware) -> str:
    if other_shapes(row):
        return "-"
    case = {"size": row["size"], "ranks": row["ranks"], "dtype": row["dtype"], "hardware": hardware}
    bound = bounds_row(get(row["problem"]["id"]), ceilings="reachable", **case).bound_us
    return f"{float(bound / row['timing']['candidate_us']):.1%}"


def window(row: Row) -> str:
    timing = row["timing"]
    if (value := timing.get("window_speedup")) is None:
        return "-"
    return interval(value, timing["window_speedup_low"], timing["window_speedup_high"])


def cells(known: Known, hardware: Hardware, judge: int) -> list[str]:
    """Ours, baseline, against it, the same by the window, reference, against it, utilisation, what is missing or older."""
    if known.failed is not None:
        return [*[""] * 7, f"{known.failed['verdict']}, communication {known.failed['communication']}"]
    if (timed := known.timed) is None:
        return [*[""] * 7, "not timed"]
    found = readings(timed)
    baseline, reference = found.get("baseline"), found.get("reference")
    same = baseline is reference
    return [
        number(timed["timing"]["candidate_us"]),
        number(baseline.us) if baseline else "",
        baseline.words if baseline else "not timed",
        window(timed) if baseline else "-",
        "the same" if same else number(reference.us) if reference else "",
        "the same" if same else reference.words if reference else "not timed",
        utilisation(timed, hardware),
        missing(known, judge),
    ]


def missing(known: Known, judge: int) -> str:
    timed = earlier(known.timed, judge, times=True) if known.timed is not None else ""
    judged = earlier(known.judged, judge, times=False) if known.judged is not None else ""
    if timed and timed == judged:
        return f"neither judged nor timed since {timed}"
    words = [f"not timed since {timed}"] if timed else []
    if known.judged is None:
        words.append("races not looked for")
    elif judged:
        words.append(f"not judged since {judged}")
    return "; ".join(words)


def is_present(known: Known, judge: int) -> bool:
    """Right by a verdict of the whole plan, and timed, both of the present kernel and problem, by the present judge or, but
    for times, one that judges alike."""
    return known.timed is not None and known.failed is None and not missing(known, judge)


class Counted(NamedTuple):
    """Of the rows that count, at one size and number of ranks."""

    kernels: int
    present: list[Known]
    """With times of the present kernel, kit, problem and judge."""
    judged: list[Known]
    """Those of them that were judged too."""

    def of(self, decision: str) -> list[str]:
        return [name_of(known) for known in self.present if against_baseline(known).decision == decision]

    def cells(self) -> list[str]:
        ratios = [against_baseline(known).speedup for known in self.present]
        said = [str(self.kernels), str(len(self.present)), str(len(self.judged)), str(len(self.of("faster")))]
        said += [", ".join(self.of(decision)) or "none" for decision in ("unproven", "same", "slower")]
        if not ratios:
            return [*said, "-"]
        middle = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
        return [*said, f"{min(ratios):.2f} to {max(ratios):.2f}, geometric mean {middle:.2f}"]


def name_of(known: Known) -> str:
    assert known.timed is not None
    return f"{known.timed['problem']['id']:02d}"


def against_baseline(known: Known) -> Reading:
    """It decides. A reference that could not be timed is no loss."""
    assert known.timed is not None
    return readings(known.timed)["baseline"]


def counted(cases: dict[Case, Known], size: str, ranks: int, judge: int) -> Counted:
    here = [known for case, known in sorted(cases.items()) if (case.size, case.ranks) == (size, ranks)]
    timed = [known for known in here if known.timed is not None and "baseline" in readings(known.timed)]
    present = [known for known in timed if known.failed is None and not earlier(known.timed or {}, judge, times=True)]
    return Counted(len(here), present, [known for known in present if is_present(known, judge)])


def summary(cases: dict[Case, Known], judge: int) -> list[str]:
    head = ["size", "ranks", "kernels", "timed", "judged too", "faster", "unproven", "same", "slower", "speedup"]
    counts = [(size, ranks, counted(cases, size, ranks, judge)) for size, ranks in TIMED]
    rows = [[f"`{size}`", str(ranks), *found.cells()] for size, ranks, found in counts]
    total = [known for _, _, found in counts for known in found.present]
    judged = [known for _, _, found in counts for known in found.judged]
    taken = [known.timed for known in total if known.timed]
    days = sorted({taken_at(row)[:10] for row in taken})
    when = f", taken on {' and '.join(days)}" if days else ""
    faster = sum(against_baseline(known).decision == "faster" for known in total)
    kernels = sum(found.kernels for _, _, found in counts)
    return [
        "## Against the baseline",
        "",
        f"By {judge_words(judge)}{anew_words(taken)}{when}, of the present kernels, kit and problems: {len(total)} of "
        f"{kernels} rows have times, and {faster} of these are `faster` than the baseline; "
        f"{len(judged)} of these have a verdict with races looked for too{of_other_judges(judged, judge)}. "
        "The last column of the tables says what is older.",
        "",
        *table(head, rows),
        "",
    ]


def of_other_judges(present: Iterable[Known], judge: int) -> str:
    """Whose times, and whose verdicts, where these are not all the present judge's."""
    rows = [known.judged for known in present if known.judged is not None]
    if all(judge_of(row) == judge for row in rows):
        return ""
    return f" (by {judges_words(rows, judge)}; these judges differ in how they take times and in nothing else)"


def times(cases: dict[Case, Known], hardware: Hardware, judge: int) -> list[str]:
    head = ["kernel", "ours us", "baseline us", "against the baseline", "by the window", "reference us"]
    head += ["against the reference", "of what the probe reached", "missing or older"]
    lines = []
    for size, ranks in TIMED:
        here = {case.problem: cases[case] for case in sorted(cases) if (case.size, case.ranks) == (size, ranks)}
        if here:
            rows = [[get(problem).stem, *cells(known, hardware, judge)] for problem, known in here.items()]
            lines += [f"## Size `{size}`, {ranks} ranks", "", *table(head, rows), ""]
    return lines


def kinds(cases: dict[Case, Known]) -> list[str]:
    rows = []
    for case in sorted(cases):
        timed = cases[case].timed
        for name, kind in (concluded(timed).get("speedup_by_kind") or {}).items() if timed else ():
            ratio = interval(kind["speedup"], kind["speedup_low"], kind["speedup_high"])
            us = (number(kind["reference_us"]), number(kind["candidate_us"]))
            rows.append([get(case.problem).stem, case.size, str(case.ranks), name, f"{kind['weight']:.0%}", *us, ratio])
    if not rows:
        return []
    head = ["kernel", "size", "ranks", "kind", "of the calls", "baseline us", "ours us", "speedup"]
    return ["## By kind of call", "", *table(head, rows), ""]


# -- since before --------------------------------------------------------------------------------------------------------


def since(cases: dict[Case, Known], judge: int) -> list[str]:
    """Times now and before, where both are of the same shapes."""
    rows, slower = [], []
    for case in sorted(cases, key=lambda case: (case.size, case.ranks, case.problem)):
        before, timed = cases[case].before, cases[case].timed
        if before is None or timed is None or sampling(judge_of(timed)) != sampling(judge) or other_shapes(before):
            continue
        ours = timed["timing"]["candidate_us"] / before["timing"]["candidate_us"]
        found = [readings(row).get("reference") for row in (timed, before)]
        reference = found[0].us / found[1].us if found[0] and found[1] else None
        name = f"{case.problem:02d} at `{case.size}` with {case.ranks} ({ours:.2f})"
        if ours > SLOWER:
            slower.append(name)
        us = [number(row["timing"]["candidate_us"]) for row in (before, timed)]
        when = f"{taken_at(before)[:10]}, {judge_words(judge_of(before))}"
        apart = "-" if reference is None else f"{reference:.2f}"
        rows.append([get(case.problem).stem, case.size, str(case.ranks), when, *us, f"{ours:.2f}", apart])
    if not rows:
        return []
    head = ["kernel", "size", "ranks", "before", "us before", "us now", "now / before", "the reference's now / before"]
    return [
        "## Since before",
        "",
        f"Slower by more than {SLOWER - 1:.0%}: {', '.join(slower) or 'none'} (of {len(rows)}).",
        "",
        "A judge without a version timed a call from the earliest start to the latest end over all ranks, and took the median "
        "over calls of all kinds; later ones take the longest of the ranks' own times, and weigh the kinds. The last column "
        "has what that, and another machine of the same sort, did to the reference.",
        "",
        *table(head, rows),
        "",
    ]


# -- verdicts ------------------------------------------------------------------------------------------------------------


def judged(cases: dict[Case, Known], judge: int) -> list[str]:
    """Which cases were judged, kernel by kernel, and what came out where it was not `correct` and `custom`."""
    every = [known.judged for known in cases.values() if known.judged is not None]
    again = [row for row in every if not earlier(row, judge, times=False)]
    failed = sum(known.failed is not None for known in cases.values())
    rows = []
    for problem in sorted({case.problem for case in cases}):
        rows.append([get(problem).stem, *(sizes_judged(cases, problem, ranks, judge) for ranks in (2, 4, 8))])
    return [
        "## Cases judged",
        "",
        f"{len(cases)} cases. `correct` with communication `custom`, races looked for, by {judges_words(again, judge)} in "
        f"their present text: {len(again)}. Failed: {failed}. Sizes in brackets were judged before that.",
        "",
        *table(["kernel", "2 ranks", "4 ranks", "8 ranks"], rows),
    ]


def sizes_judged(cases: dict[Case, Known], number: int, ranks: int, judge: int) -> str:
    problem, words = get(number), []
    before: dict[str, list[str]] = {}
    for size in ("tiny", "odd", "paper", "real"):
        known = cases.get(Case(number, size, ranks), Known())
        if problem.why_not(size, ranks, problem.default_dtype):
            words.append(f"{size}: not possible")
        elif known.failed is not None:
            words.append(f"**{size}: {known.failed['verdict']}, {known.failed['communication']}**")
        elif known.judged is not None and (old := earlier(known.judged, judge, times=False)):
            before.setdefault(old, []).append(size)
        else:
            words.append(size if known.judged is not None else f"{size}: not judged")
    return ", ".join([*words, *(f"({', '.join(sizes)}; {old})" for old, sizes in before.items())])


def page(cases: dict[Case, Known], hardware: Hardware) -> str:
    judge = newest_judge(cases)
    parts = [summary(cases, judge), times(cases, hardware, judge), kinds(cases), since(cases, judge)]
    return "\n".join([*(line for part in parts for line in part), *judged(cases, judge), ""])


# -- the same again ------------------------------------------------------------------------------------------------------


def again(paths: list[Path]) -> tuple[str, bool]:
    """A table of what came out each time, and whether that was one verdict and one decision for each."""
    cases: dict[tuple[str, str, int], list[Row]] = {}
    for path in paths:
        for row in read_rows(path):
            cases.setdefault((row["candidate"]["file"], row["size"], row["ranks"]), []).append(row)
    rows, one_each = [], True
    for (file, size, ranks), taken in sorted(cases.items()):
        timed = [row["timing"] for row in taken if row["timing"]]
        verdicts, decisions = Counter(row["verdict"] for row in taken), Counter(t["decision"] for t in timed)
        one_each &= len(verdicts) == 1 and len(decisions) <= 1
        speedups, windows = ([t[name] for t in timed if t[name]] for name in ("speedup", "window_speedup"))
        words = [", ".join(f"{word} {count}" for word, count in said.most_common()) for said in (verdicts, decisions)]
        rows.append([file, size, str(ranks), str(len(taken)), *words, spread(speedups), spread(windows)])
    head = ["candidate", "size", "ranks", "times", "verdicts", "decisions", "speedups", "by the window"]
    return "\n".join(table(head, rows)), one_each


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
    cases = read(args.verdicts)
    if args.keep is not None:
        args.keep.write_text("".join(json.dumps(row) + "\n" for row in kept(cases)))
    text = page(cases, load(args.hardware))
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
