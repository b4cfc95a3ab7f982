"""Runs all references and writes a table: time of a call and peak memory, at each size and number of ranks.

    python benchmarks/references.py [--ids all] [--cases paper:4,paper:8,real:8] [--platform auto] --out DIR

Every row is appended to DIR/references.jsonl as soon as it is there, so that a run that is cut short keeps what it has;
rows that are there already are not taken again. DIR/references.md is the table, rewritten after each case.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from pkb.judge.oracle_world import running
from pkb.judge.references import ReferenceRow, run_references
from pkb.platforms.registry import resolve
from pkb.problems import default_registry

Rows = dict[tuple[int, str, int], dict[str, Any]]


def read(path: Path) -> Rows:
    lines = path.read_text().splitlines() if path.exists() else []
    return {(row["id"], row["size"], row["ranks"]): row for row in map(json.loads, lines)}


def table(rows: Rows, cases: list[tuple[str, int]]) -> str:
    head = ["problem", *(f"{size}, {ranks} ranks: us" for size, ranks in cases)]
    head += [f"{size}, {ranks} ranks: GiB" for size, ranks in cases]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for problem in default_registry().all():
        found = [rows.get((problem.id, size, ranks)) for size, ranks in cases]
        if any(found):
            lines.append(f"| {' | '.join([problem.stem, *map(time_words, found), *map(memory_words, found)])} |")
    return "\n".join(lines) + "\n"


def time_words(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    return f"{row['time_us']:.0f}" if row["time_us"] is not None else "failed"


def memory_words(row: dict[str, Any] | None) -> str:
    return f"{row['all_ranks_peak_bytes'] / 2**30:.2f}" if row and row["all_ranks_peak_bytes"] is not None else ""


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
            (args.out / "references.md").write_text(table(read(path), cases))
    failed = [row for row in read(path).values() if row["error"]]
    print(f"{len(read(path))} rows, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
