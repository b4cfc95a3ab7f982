"""The table of published CUDA candidates that were judged on platform cpu: totals by verdict and tree.

python benchmarks/frontier.py TREES --out out/cpu --platform cpu --nvls --size tiny --plans quick --workers 1
python benchmarks/frontier_cpu.py out/cpu/*.jsonl --keep docs/records/cpu-frontier.jsonl --out docs/cuda-on-cpu.md
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

FILES = {"gemini-3-pro cuda": 87, "gpt-5.5 cuda": 83, "opus-4.7 cuda": 87}
"""How many there are of each tree."""
BEGIN, END = "<!-- frontier on cpu -->\n", "<!-- end of frontier on cpu -->"


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", type=Path, nargs="+", help="older first")
    parser.add_argument("--keep", type=Path, help="write what is counted to this file")
    parser.add_argument("--out", type=Path, help="a page that has the table between two comments")
    options = parser.parse_args()
    records = latest(json.loads(line) for path in options.records for line in path.read_text().splitlines())
    if options.keep:
        options.keep.write_text("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))
    text = table(records)
    print(text, end="")
    if options.out:
        page = options.out.read_text()
        before, _, rest = page.partition(BEGIN)
        options.out.write_text(before + BEGIN + text + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
