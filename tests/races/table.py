"""Prints docs/race-mutants.md from the lines that mutants.py has written.

python tests/races/table.py results.jsonl > docs/race-mutants.md
"""

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from equivalents import argument_for
from kernels import BY_NAME

ROW = dict[str, Any]
WORDS = {
    "no_synchronisation": "no synchronisation",
    "buffer_reused_too_early": "buffer reused too early",
    "scope_too_narrow": "scope too narrow",
    "relaxed_where_release_acquire_is_needed": "relaxed where release and acquire are needed",
    "async_proxy_without_fence": "async proxy without fence",
    "read_only_cache": "read-only cache",
}


def read(paths: list[str]) -> list[ROW]:
    """The last line of each mutant and number of ranks."""
    found: dict[tuple[str, str, int], ROW] = {}
    for path in paths:
        for line in Path(path).read_text().splitlines():
            row = json.loads(line)
            found[row["kernel"], row["mutant"], row["world"]] = row
    return list(found.values())


def outcome(row: ROW) -> str:
    if row["kinds"]:
        return "reported"
    if row["trouble"].startswith(("rank", "ranks")):
        return "trapped"
    return "equivalent" if argument_for(row["kernel"], row["mutant"]) else "not reported"


def main() -> None:
    rows = read(sys.argv[1:])
    honest = [row for row in rows if row["mutant"] == "honest"]
    mutants = [row for row in rows if row["mutant"] != "honest"]
    outcomes = Counter(map(outcome, mutants))
    print(HEAD)
    print(
        f"{len(mutants)} mutants: {outcomes['reported']} are reported as races, {outcomes['trapped']} end in a fault of the "
        f"kernel before the second access is made, {outcomes['equivalent']} are equivalent (below), "
        f"{outcomes['not reported']} are neither.\n"
    )
    _by_kernel(mutants)
    _by_notch(mutants)
    _others(mutants)
    _honest(honest)


def _by_kernel(mutants: list[ROW]) -> None:
    """How many were run of each: a kernel that is missing, or has few, was not run, or in part."""
    print("| Kernel | Mutants run | Reported | Trapped | Equivalent |")
    print("|---|---|---|---|---|")
    for kernel in BY_NAME:
        counts = Counter(outcome(row) for row in mutants if row["kernel"] == kernel)
        run = sum(counts.values())
        print(
            f"| {kernel} | {run or 'not run'} | {counts['reported']} | {counts['trapped']} | {counts['equivalent']} |"
        )
    print()


def _by_notch(mutants: list[ROW]) -> None:
    print("| What was weakened | Mutants | Reported | as (one mutant may show several) |")
    print("|---|---|---|---|")
    by_place: dict[str, list[ROW]] = defaultdict(list)
    for row in mutants:
        by_place[row["mutant"]].append(row)
    for place, some in sorted(by_place.items()):
        kinds = Counter(WORDS.get(kind, kind) for row in some for kind in row["kinds"])
        shown = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
        print(f"| `{place}` | {len(some)} | {sum(bool(row['kinds']) for row in some)} | {shown or '-'} |")
    print()


def _others(mutants: list[ROW]) -> None:
    print("## Those that are not reported\n")
    print("| Kernel | Mutant | Why |")
    print("|---|---|---|")
    for row in sorted(mutants, key=lambda row: (row["mutant"], row["kernel"])):
        if not row["kinds"]:
            trapped = f"the kernel faults first: {row['trouble']}" if outcome(row) == "trapped" else ""
            why = argument_for(row["kernel"], row["mutant"]) or trapped or "**no reason is known**"
            print(f"| {row['kernel']} | `{row['mutant']}` | {why} |")
    print()


def _honest(rows: list[ROW]) -> None:
    worlds = sorted({row["world"] for row in rows})
    print("## Honest kernels\n\nEvents of a recorded run, and what was reported.\n")
    print("| Kernel |" + "".join(f" {world} ranks |" for world in worlds))
    print("|---|" + "---|" * len(worlds))
    for kernel in dict.fromkeys(row["kernel"] for row in rows):
        cells = {row["world"]: _cell(row) for row in rows if row["kernel"] == kernel}
        print(f"| {kernel} |" + "".join(f" {cells.get(world, 'not run')} |" for world in worlds))


def _cell(row: ROW) -> str:
    found = ", ".join(row["kinds"]) or row["trouble"] or "nothing"
    return f"{row['events']} events, {found}" if row["events"] else found


HEAD = """# Mutants of our kernels, and the race detector

Each kernel of `solutions/` (every way through it, with slots of some hundred bytes, a few calls) with one synchronisation
weakened by one notch, recorded on platform `cpu` with three ranks and given to the analyser. Made by

    python tests/races/mutants.py --out results.jsonl
    python tests/races/mutants.py --honest --world 2 --world 4 --world 8 --out results.jsonl
    python tests/races/table.py results.jsonl > docs/race-mutants.md

One build of a kernel holds all of its mutants (`tests/races/schemata.py`); those whose place a kernel does not come to are not
counted. A report is made from one run: up to five orders of threads are tried, and the first that is reported counts. `not run`
means that this table was made without it, and few mutants that a kernel was run in part.
"""

if __name__ == "__main__":
    main()
