"""Runs `pkb lint` over all problems with several secrets: ten secrets find a null candidate that passes one time in ten.

    python benchmarks/lint_runs.py [--ids all] [--cases tiny:2,tiny:4,tiny:8] [--rounds 3] [--budget SECONDS] --out DIR

Every round of a case has its own ranks and its own secret. Rows are appended to DIR/lint.jsonl case by case. A case that is
already there with the problem's present version is not run again, so the same command continues after an interruption or the
end of its budget, and runs a problem again after it was fixed. `lint_table.py` makes the table from DIR/present.jsonl, the
rows of the problems' present versions.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from kernel_records import add_row, read_rows

from pkb.judge.oracle_only.lint import lint
from pkb.platforms.registry import resolve
from pkb.problems import default_registry
from pkb.problems.base import Problem
from pkb.types.lint import LintRow

FILE = "lint.jsonl"
Case = tuple[int, str, str, int, str, int]
"""Problem and its versions, size, ranks, dtype, round."""


class BudgetSpent(Exception):
    """The time is up; what was found is on disk."""


def versions_of(problem: Problem) -> str:
    return f"{problem.version}, baseline {problem.baseline_version if problem.baseline else 0}"


def case_of(row: dict[str, Any]) -> Case:
    return row["problem_id"], row["versions"], row["size"], row["ranks"], row["dtype"], row["round"]


def present(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the versions that problems have now."""
    versions = {problem.id: versions_of(problem) for problem in default_registry().all()}
    return [row for row in rows if row["versions"] == versions.get(row["problem_id"])]


def run(problems: list[Problem], size: str, ranks: int, dtype: str, number: int, args: argparse.Namespace) -> None:
    versions = {problem.id: versions_of(problem) for problem in problems}

    def keep(rows: list[LintRow]) -> None:
        for row in rows:
            add_row(args.out / FILE, {**row.to_dict(), "versions": versions[row.problem_id], "round": number})
        bad = [f"{row.null_candidate} {'fails' if row.must_pass else 'passes'}" for row in rows if row.is_bad]
        print(f"{rows[0].name} {size} {ranks} {dtype} round {number}: {', '.join(bad) or 'clean'}", flush=True)
        if time.monotonic() >= args.stop_at:
            raise BudgetSpent

    lint(problems, platform=args.platform, sizes=[size], world_sizes=[ranks], dtypes=[dtype], on_rows=keep)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ids", default="all")
    options.add_argument("--cases", default="tiny:2,tiny:4,tiny:8")
    options.add_argument("--dtypes", default="", help="with commas; default: each problem's own")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--platform", default="auto")
    options.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no case is begun")
    options.add_argument("--out", type=Path, required=True)
    args = options.parse_args()
    args.platform, args.stop_at = resolve(args.platform), time.monotonic() + args.budget
    args.out.mkdir(parents=True, exist_ok=True)
    done = {case_of(row) for row in read_rows(args.out / FILE)}
    chosen = default_registry().select(args.ids)
    cases = [(size, int(ranks)) for size, _, ranks in (case.partition(":") for case in args.cases.split(","))]
    spent = False
    try:
        for number in range(args.rounds):
            for size, ranks in cases:
                for dtype in args.dtypes.split(",") if args.dtypes else ("bf16", "fp32", "fp64"):
                    missing = [
                        p for p in chosen
                        if (args.dtypes or p.default_dtype == dtype) and p.why_not(size, ranks, dtype) is None
                        and (p.id, versions_of(p), size, ranks, dtype, number) not in done
                    ]  # fmt: skip
                    if missing:
                        run(missing, size, ranks, dtype, number, args)
    except BudgetSpent:
        spent = True
    found = present(read_rows(args.out / FILE))
    (args.out / "present.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
    bad = Counter(
        (row["problem_id"], row["size"], row["ranks"], row["null_candidate"])
        for row in found
        if row["passed"] != row["must_pass"] and not row["tolerated"]
    )
    for (number, size, ranks, null), times in sorted(bad.items()):
        print(f"problem {number}, {size}, {ranks} ranks: {null}, {times} times")
    print(f"{len(set(map(case_of, found)))} cases{'; the budget is spent, run again to go on' if spent else ''}")
    return 1 if bad or spent else 0


if __name__ == "__main__":
    sys.exit(main())
