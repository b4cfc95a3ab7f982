"""Times the problems' own functions by themselves: time of a call and peak memory, at each size and number of ranks.

    python benchmarks/references.py [--cases paper:8,real:8,decode:8] [--platform auto] [--budget SECONDS] --out DIR
    python benchmarks/references.py --alternatives [--ids 2401,7901] --out DIR    what else was tried as a baseline

First every reference, then every baseline, then torch's symmetric memory where a problem has that. Every row is appended to
DIR/references.jsonl, DIR/baselines.jsonl or DIR/stock_symmetric.jsonl as soon as it is there. Rows that are there already are
not taken again, those that failed only with --retry: the same command goes on where it was cut short, by its budget or
otherwise. `reference_report.py` makes the page and the picture of them.

`alternatives/` beside this file has other baselines: p5401 is the first that was tried for problem 54. Each is a problem with
that as its baseline, held to the same comparison, and timed at `real` with 8 ranks, or as many as fit one GPU; in the order of
--ids. Rows go to DIR/alternatives.jsonl, and each is told against what is taken today, by the rows of that in DIR.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from kernel_records import add_row, read_rows

from pkb.judge.oracle_only.references import ReferenceRow, run_references
from pkb.judge.oracle_only.world import running
from pkb.platforms.base import Platform
from pkb.platforms.registry import resolve
from pkb.problems import default_registry
from pkb.problems.base import Problem
from pkb.problems.registry import Registry, load_folder
from pkb.types.stock import StockFunction

FILES: dict[StockFunction, str] = {
    "reference": "references.jsonl",
    "baseline": "baselines.jsonl",
    "stock_symmetric": "stock_symmetric.jsonl",
}
ALTERNATIVES = Path(__file__).parent / "alternatives"
NOISE = 0.9
"""Between starts of a machine times differ by a tenth (docs/references.md)."""
Key = tuple[int, str, int]


@cache
def all_problems() -> Registry:
    return default_registry().with_folder(ALTERNATIVES)


class BudgetSpent(Exception):
    """The time is up; what was measured is on disk."""


def read(path: Path) -> dict[Key, dict[str, Any]]:
    """The latest row of each case; one without a time does not replace one that has it. Nor do rows count of a call that the
    problem no longer makes at this size, or of a baseline that is another by now."""
    rows: dict[Key, dict[str, Any]] = {}
    for row in read_rows(path):
        key = (row["id"], row["size"], row["ranks"])
        if key not in rows or has_time(row) or not has_time(rows[key]):
            rows[key] = row
    return {key: row for key, row in rows.items() if is_present(row)}


def has_time(row: dict[str, Any]) -> bool:
    return bool(row["time_us"]) and is_present(row)


def failed(row: dict[str, Any]) -> bool:
    """Another try may succeed."""
    return bool(row["error"]) and not row["error"].startswith("unsupported")


def is_present(row: dict[str, Any]) -> bool:
    if row["id"] not in all_problems().ids():  # an alternative that was taken
        return False
    problem = all_problems().get(row["id"])
    # Rows without a version are older than any second one. An alternative has that of its problem.
    other = row["function"] == "baseline" and row.get("version", 1) != problem.baseline_version
    if row["size"] not in problem.sizes or other:
        return False
    said = row["argument_bytes"]
    return not said or said == argument_bytes(row["id"], row["size"], row["ranks"], row["dtype"])


@cache
def argument_bytes(number: int, size: str, ranks: int, dtype: str) -> int:
    """Arguments are drawn to know it, if without values: once for all functions of a problem."""
    return all_problems().get(number).argument_bytes(size, ranks, dtype)


@dataclass(frozen=True)
class Measurement:
    out: Path
    platform: Platform
    calls: int
    truth: bool
    retry: bool
    stop_at: float
    """On the monotonic clock."""
    started: float
    alternatives: bool = False

    def file_of(self, function: StockFunction) -> Path:
        return self.out / ("alternatives.jsonl" if self.alternatives else FILES[function])

    def take(self, problems: list[Problem], function: StockFunction, size: str, ranks: int) -> None:
        """What is missing of one case. A side that cannot be brought back costs the problem at which it happened."""
        path = self.file_of(function)
        there = read(path)
        done = {key for key, row in there.items() if not (self.retry and failed(row))}
        missing = [problem for problem in problems if (problem.id, size, ranks) not in done]
        while missing:
            if time.monotonic() >= self.stop_at:
                raise BudgetSpent
            taken: list[int] = []
            try:
                run_references(
                    missing, platform=self.platform, size=size, world_size=ranks, calls=self.calls,
                    truth=self.truth and function == "reference", function=function,
                    problems_folder=ALTERNATIVES if self.alternatives else None,
                    on_row=lambda row, path=path, taken=taken: self.keep(row, path, taken),  # type: ignore[misc]
                )  # fmt: skip
                return
            except BudgetSpent:
                raise
            except Exception as error:
                runnable = [p for p in missing if runs(p, function, size, ranks)]
                left = [problem for problem in runnable if problem.id not in taken]
                traceback.print_exc()
                if not left:
                    return
                first, missing = left[0], left[1:]
                lost = ReferenceRow(
                    id=first.id, name=first.name, size=size, ranks=ranks, dtype=first.default_dtype, function=function,
                    error=f"{type(error).__name__}: {error}"[:500],
                )  # fmt: skip
                self.keep(lost, path, taken)

    def keep(self, row: ReferenceRow, path: Path, taken: list[int]) -> None:
        add_row(path, row.to_dict())
        taken.append(row.id)
        words = row.error or f"{row.time_us:.0f} us, {(row.all_ranks_peak_bytes or 0) / 2**30:.2f} GiB"
        if self.alternatives and row.time_us:
            words += f", {gain(self.out, row.to_dict()) or 'what is taken has no time here'}"
        if row.compared is not None:
            words += f", error ratio {row.compared:.2f}"
        if row.compare_error:
            words += f", not compared: {row.compare_error}"
        if row.truth_peak_bytes is not None or row.truth_error:
            words += f", truth {(row.truth_peak_bytes or 0) / 2**30:.2f} GiB {row.truth_error}"
        seconds = time.monotonic() - self.started
        print(f"[{seconds:6.1f}] {row.id:2d} {row.name} {row.size} {row.ranks} {row.function}: {words}", flush=True)
        if time.monotonic() >= self.stop_at:
            raise BudgetSpent


def gain(out: Path, row: Mapping[str, Any]) -> str:
    """An alternative beside the faster of its problem's reference and baseline, in words; empty where neither was timed."""
    key = (row["id"] // 100, row["size"], row["ranks"])
    known = (read(out / FILES[function]).get(key) for function in ("reference", "baseline"))
    taken = min((one["time_us"] for one in known if one is not None and one["time_us"]), default=None)
    if taken is None:
        return ""
    ratio = row["time_us"] / taken
    words = "FASTER than" if ratio < NOISE else "slower than" if ratio > 1 / NOISE else "about as fast as"
    return f"{words} what is taken: {row['time_us']:.0f} us against {taken:.0f}, {1 / ratio:.2f} times"


def most_ranks(problem: Problem, size: str) -> int:
    return max(problem.fits_one_gpu.get(size, (8,)))


def runs(problem: Problem, function: StockFunction, size: str, ranks: int) -> bool:
    return getattr(problem, function) is not None and problem.why_not(size, ranks, problem.default_dtype) is None


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ids", default="all")
    options.add_argument("--cases", default="", help="of size:ranks; paper:8,real:8,decode:8 by default")
    options.add_argument("--functions", default=",".join(FILES))
    options.add_argument(
        "--alternatives", action="store_true", help="other baselines that were tried, and nothing else"
    )
    options.add_argument("--platform", default="auto")
    options.add_argument("--truth", action="store_true", help="also note what memory the truth takes")
    options.add_argument("--calls", type=int, default=8)
    options.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no case is begun")
    options.add_argument("--retry", action="store_true", help="take rows again that failed")
    options.add_argument("--out", type=Path, required=True)
    args = options.parse_args()
    functions = cast(list[StockFunction], ["baseline"] if args.alternatives else args.functions.split(","))
    if unknown := set(functions) - set(FILES):
        options.error(f"functions are {', '.join(FILES)}, not {', '.join(sorted(unknown))}")
    args.out.mkdir(parents=True, exist_ok=True)
    registry = Registry(load_folder(ALTERNATIVES)) if args.alternatives else default_registry()
    chosen, started = registry.select(args.ids), time.monotonic()
    said = args.cases or ("" if args.alternatives else "paper:8,real:8,decode:8")
    cases = [
        (size, int(ranks), chosen) for size, _, ranks in (case.partition(":") for case in filter(None, said.split(",")))
    ]
    if not cases:
        fitting = {problem.id: most_ranks(problem, "real") for problem in chosen}
        for ranks in sorted(set(fitting.values())):
            cases.append(("real", ranks, [problem for problem in chosen if fitting[problem.id] == ranks]))
    spent = False
    with running(resolve(args.platform), max(ranks for _, ranks, _ in cases)) as platform:
        measurement = Measurement(
            args.out, platform, args.calls, args.truth, args.retry, started + args.budget, started, args.alternatives
        )  # fmt: skip
        try:
            for function in functions:
                for size, ranks, problems in cases:
                    measurement.take([p for p in problems if runs(p, function, size, ranks)], function, size, ranks)
        except BudgetSpent:
            spent = True
    rows = [row for function in functions for row in read(measurement.file_of(function)).values()]
    if args.alternatives:
        right = [row for row in rows if row["time_us"] and row["compared"] is not None]
        found = [(row, words) for row in right if (words := gain(args.out, row)).startswith("FASTER")]
        print(
            "\n".join(f"{row['id']} {row['name']}: {words}" for row, words in found)
            or "none is faster than what is taken"
        )
    failures = sum(map(failed, rows))
    print(f"{len(rows)} rows, {failures} failed{'; the budget is spent, run again to go on' if spent else ''}")
    return 1 if failures or spent else 0


if __name__ == "__main__":
    sys.exit(main())
