"""Runs all references: time of a call and peak memory, at each size and number of ranks.

    python benchmarks/references.py [--ids all] [--cases paper:4,paper:8,real:8] [--platform auto] --out DIR

Every row is appended to DIR/references.jsonl as soon as it is there, so that a run that is cut short keeps what it has;
rows that are there already are not taken again. `reference_report.py` makes the table and the picture of it.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from pkb.judge.oracle_only.references import ReferenceRow, run_references
from pkb.judge.oracle_only.world import running
from pkb.platforms.registry import resolve
from pkb.problems import default_registry


def read(path: Path) -> dict[tuple[int, str, int], dict[str, Any]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {(row["id"], row["size"], row["ranks"]): row for row in map(json.loads, lines)}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ids", default="all")
    options.add_argument("--cases", default="paper:4,paper:8,real:8")
    options.add_argument("--platform", default="auto")
    options.add_argument(
        "--truth", action="store_true", help="also compute the truth once and note what memory it takes"
    )
    options.add_argument("--calls", type=int, default=8)
    options.add_argument("--out", type=Path, required=True)
    args = options.parse_args()
    cases = [(size, int(ranks)) for size, _, ranks in (case.partition(":") for case in args.cases.split(","))]
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "references.jsonl"
    chosen = default_registry().select(args.ids)
    started = time.monotonic()
    with running(resolve(args.platform), max(ranks for _, ranks in cases)) as platform:
        for size, ranks in cases:
            there = read(path)
            missing = [problem for problem in chosen if (problem.id, size, ranks) not in there]

            def keep(row: ReferenceRow) -> None:
                with path.open("a") as file:
                    file.write(json.dumps(row.to_dict()) + "\n")
                words = row.error or f"{row.time_us:.0f} us, {(row.all_ranks_peak_bytes or 0) / 2**30:.2f} GiB"
                words += (
                    f", truth {(row.truth_peak_bytes or 0) / 2**30:.2f} GiB {row.truth_error}" if args.truth else ""
                )
                print(
                    f"[{time.monotonic() - started:6.1f}] {row.id:2d} {row.name} {row.size} {row.ranks}: {words}",
                    flush=True,
                )

            run_references(
                missing, platform=platform, size=size, world_size=ranks, calls=args.calls, truth=args.truth, on_row=keep
            )
    failed = [row for row in read(path).values() if row["error"]]
    print(f"{len(read(path))} rows, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
