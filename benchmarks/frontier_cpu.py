"""The tables of published CUDA candidates that were judged on platform cpu: totals by verdict and tree, and beside an H200's.

python benchmarks/frontier.py TREES --out out/cpu --platform cpu --nvls --size tiny --plans quick --workers 1
python benchmarks/frontier_cpu.py out/cpu/*.jsonl --keep docs/records/cpu-frontier.jsonl --out docs/cuda-on-cpu.md
"""

import argparse
import csv
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

FILES = {"gemini-3-pro cuda": 87, "gpt-5.5 cuda": 83, "opus-4.7 cuda": 87}
"""How many there are of each tree."""
BEGIN, END = "<!-- frontier on cpu -->\n", "<!-- end of frontier on cpu -->"
H200 = Path(__file__).parents[1] / "docs" / "records" / "cpu-frontier-h200.csv"
"""Verdicts of an older judge for the files of one tree, plan standard at size paper. Outputs that are overwritten have the name
that they have now."""
CLASSES = {
    "right": ("correct",), "overwritten output": ("reused_output",), "wrong": ("wrong", "race"), "deadlock": ("deadlock",),
    "run-time error": ("runtime_error", "crash", "load_error"), "does not build": ("compile_error",),
}  # fmt: skip


def latest(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """One for each file: of several, the last, which is by newer code."""
    found = {(record["collection"], record["evaluation"]["candidate"]["sha256"]): record for record in records}
    return [found[key] for key in sorted(found)]


def table(records: Iterable[Mapping[str, Any]]) -> str:
    counts = Counter((record["evaluation"]["verdict"], record["collection"]) for record in records)
    trees = sorted(FILES)
    lines = [
        "| Verdict | " + " | ".join(tree.removesuffix(" cuda") for tree in trees) + " | all |",
        "|---|" + "---|" * (len(trees) + 1),
    ]
    by_size = Counter({verdict: sum(counts[verdict, tree] for tree in trees) for verdict, _ in counts})
    for verdict, total in by_size.most_common():
        lines.append(f"| `{verdict}` | " + " | ".join(str(counts[verdict, tree]) for tree in trees) + f" | {total} |")
    judged = {tree: sum(counts[verdict, tree] for verdict in by_size) for tree in trees}
    lines.append(
        "| judged | " + " | ".join(f"{judged[t]} of {FILES[t]}" for t in trees) + f" | {sum(judged.values())} |"
    )
    return "\n".join(lines) + "\n"


def class_of(verdict: str) -> str:
    return next((name for name, verdicts in CLASSES.items() if verdict in verdicts), "other")


def beside_h200(records: Iterable[Mapping[str, Any]], h200: Iterable[Mapping[str, str]]) -> str:
    """How many files of each class there are in which class here."""
    here = {(record["collection"], record["problem"]): record["evaluation"]["verdict"] for record in records}
    pairs = Counter(
        (class_of(row["verdict"]), class_of(here[row["collection"], int(row["problem"])]))
        for row in h200
        if (row["collection"], int(row["problem"])) in here
    )
    columns = [name for name in (*CLASSES, "other") if any(found == name for _, found in pairs)]
    lines = ["| H200, older judge, size paper | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for row in CLASSES:
        if any(wanted == row for wanted, _ in pairs):
            lines.append(f"| {row} | " + " | ".join(str(pairs[row, column] or "") for column in columns) + " |")
    same = sum(count for (wanted, found), count in pairs.items() if wanted == found)
    return "\n".join(lines) + f"\n\nThe same class for {same} of {sum(pairs.values())} files.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", type=Path, nargs="+", help="older first")
    parser.add_argument("--keep", type=Path, help="write what is counted to this file")
    parser.add_argument("--out", type=Path, help="a page that has the table between two comments")
    options = parser.parse_args()
    records = latest(json.loads(line) for path in options.records for line in path.read_text().splitlines())
    if options.keep:
        options.keep.write_text("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))
    with H200.open() as older:
        text = table(records) + "\n" + beside_h200(records, csv.DictReader(older))
    print(text, end="")
    if options.out:
        page = options.out.read_text()
        before, _, rest = page.partition(BEGIN)
        options.out.write_text(before + BEGIN + text + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
