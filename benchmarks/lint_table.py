"""Makes docs/lint.md from what `pkb lint all --json` or `lint_runs.py` wrote: one row a problem, the nearest null candidate of
all its cases and secrets.

python benchmarks/lint_runs.py --out out/lint; python benchmarks/lint_table.py out/lint/present.jsonl --out docs/lint.md
"""

import argparse
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

MARK = "<!-- below: made by benchmarks/lint_table.py -->"
Row = dict[str, Any]


def ratio(value: Any) -> float:
    return math.inf if value in ("inf", None) else float(value)


def words(value: float) -> str:
    return (
        "inf"
        if math.isinf(value)
        else f"{value:.2g}"
        if value < 100
        else f"{value:.0f}"
        if value < 1e5
        else f"{value:.0e}"
    )


def read(path: Path) -> list[Row]:
    text = path.read_text()
    return json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines()]


def case(row: Row) -> str:
    return f"{row['size']}, {row['ranks']} ranks, {row['dtype']}"


def table(rows: list[Row]) -> str:
    by_problem: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for row in rows:
        by_problem[row["problem_id"], row["name"]].append(row)
    head = [
        "problem", "cases", "nearest null candidate", "in", "margin", "without communication", "honest, worst", "gap", "int8",
    ]  # fmt: skip
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for (number, name), found in sorted(by_problem.items()):
        near = min((row for row in found if not row.get("tolerated")), key=lambda row: ratio(row["margin"]))
        int8 = min((ratio(row["margin"]) for row in found if row.get("tolerated")), default=None)
        # Within one case: honest rounding of bf16 says nothing about a null candidate of float32.
        gaps = [
            ratio(row["margin"]) / ratio(row["honest_ratio"])
            for row in found
            if row["honest_ratio"] and not row.get("tolerated")
        ]
        silent = min(
            (row for row in found if row["null_candidate"] == "no_communication"), key=lambda r: ratio(r["margin"])
        )
        honest = max(ratio(row["honest_ratio"]) for row in found)
        how = f" ({silent['note']})" if silent["note"] else ""
        cells = [
            f"{number:02d}_{name}", str(len({case(row) for row in found})), near["null_candidate"], case(near),
            words(ratio(near["margin"])), words(ratio(silent["margin"])) + how, words(honest),
            words(min(gaps)) if gaps else "-", "-" if int8 is None else words(int8),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def replace_tables(path: Path, text: str) -> None:
    """What people wrote above the mark stays."""
    head = (
        path.read_text().partition(MARK)[0] if path.exists() else "# No problem can be passed without communicating\n\n"
    )
    path.write_text(f"{head}{MARK}\n\n{text}")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("rows", type=Path)
    options.add_argument("--out", type=Path, required=True)
    args = options.parse_args()
    rows = [row for row in read(args.rows) if not row.get("must_pass")]
    passed = [row for row in rows if row["passed"]]
    rows, all_rows = [row for row in rows if not row.get("tolerated")], rows
    nearest = min(rows, key=lambda row: ratio(row["margin"]))
    secrets = {r.get("round", 0) for r in rows}
    summary = (
        f"{len(rows)} null candidates in {len({(r['problem_id'], case(r)) for r in rows})} cases, with up to {len(secrets)} "
        f"secrets; {len(passed)} pass. "
        f"The nearest ({nearest['null_candidate']} in problem {nearest['problem_id']}, {case(nearest)}) has "
        f"{words(ratio(nearest['margin']))} times the tolerated error.\n\n"
    )
    replace_tables(args.out, summary + table(all_rows))
    print(summary.strip())
    return 1 if passed else 0


if __name__ == "__main__":
    raise SystemExit(main())
