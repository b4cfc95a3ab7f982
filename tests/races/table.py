"""Prints docs/race-mutants.md from the lines that mutants.py, honest.py and replays.py have written, in any order.

python tests/races/table.py mutants.jsonl honest.jsonl replays.jsonl > docs/race-mutants.md
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
    """The last line of each mutant, trace and replay."""
    found: dict[tuple[Any, ...], ROW] = {}
    for path in paths:
        for line in Path(path).read_text().splitlines():
            row = json.loads(line)
            found[tuple(row.get(name) for name in ("kernel", "mutant", "name", "world", "seed", "graph"))] = row
    return list(found.values())


def outcome(row: ROW) -> str:
    if row["kinds"]:
        return "reported"
    if row["trouble"].startswith(("rank", "ranks")):
        return "trapped"
    return "argued" if argument_for(row["kernel"], row["mutant"]) else "not reported"


def main() -> None:
    rows = read(sys.argv[1:])
    mutants = [row for row in rows if row.get("mutant", "honest") != "honest"]
    outcomes = Counter(map(outcome, mutants))
    print(HEAD)
    print(
        f"{len(mutants)} mutants: {outcomes['reported']} are reported as races, {outcomes['trapped']} end in a fault of the "
        f"kernel before the second access is made, {outcomes['argued']} are no race by an argument (below), "
        f"{outcomes['not reported']} are neither.\n"
    )
    _by_kernel(mutants)
    _by_notch(mutants)
    _others(mutants)
    _honest([row for row in rows if "seed" in row])
    _replays([row for row in rows if "graph" in row])


def _by_kernel(mutants: list[ROW]) -> None:
    """How many were run of each: a kernel that is missing, or has few, was not run, or in part."""
    print("| Kernel | Mutants run | Reported | Trapped | No race |")
    print("|---|---|---|---|---|")
    for kernel in BY_NAME:
        counts = Counter(outcome(row) for row in mutants if row["kernel"] == kernel)
        run = sum(counts.values())
        print(f"| {kernel} | {run or 'not run'} | {counts['reported']} | {counts['trapped']} | {counts['argued']} |")
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
    by_cell: dict[tuple[str, int], list[ROW]] = defaultdict(list)
    for row in rows:
        by_cell[row["name"], row["world"]].append(row)
    worlds = sorted({world for _, world in by_cell})
    reported = [row for row in rows if row["kinds"] or row["trouble"]]
    print(HONEST.format(traces=len(rows), events=sum(row["events"] for row in rows), reported=len(reported)))
    print("| What |" + "".join(f" {world} ranks |" for world in worlds))
    print("|---|" + "---|" * len(worlds))
    for name in dict.fromkeys(name for name, _ in by_cell):
        print(f"| {name} |" + "".join(f" {_cell(by_cell[name, world])} |" for world in worlds))
    print()


def _cell(rows: list[ROW]) -> str:
    if not rows:
        return "not run"
    found = {*(kind for row in rows for kind in row["kinds"]), *(row["trouble"] for row in rows if row["trouble"])}
    return f"{len(rows)}: {', '.join(sorted(found)) or 'nothing'} in {sum(row['events'] for row in rows):,} events"


def _replays(rows: list[ROW]) -> None:
    print(REPLAYS)
    print("| Kernel | how | wrong replays | reported |")
    print("|---|---|---|---|")
    for row in rows:
        how = "replayed" if row["graph"] else "called"
        wrong = row["trouble"] or len(row["wrong"])
        print(f"| {row['name']} | {how} | {wrong} | {', '.join(WORDS[kind] for kind in row['kinds']) or 'nothing'} |")


HEAD = """# Mutants of our kernels, and the race detector

Each kernel of `solutions/` (every way through it, with slots of some hundred bytes, a few calls) with one synchronisation
weakened by one notch, recorded on platform `cpu` with three ranks and given to the analyser. Made by

    python tests/races/mutants.py --out mutants.jsonl
    python tests/races/honest.py --out honest.jsonl
    python tests/races/replays.py > replays.jsonl
    python tests/races/table.py mutants.jsonl honest.jsonl replays.jsonl > docs/race-mutants.md

The first two can be stopped and go on where they were. One build of a kernel holds all of its mutants
(`tests/races/schemata.py`); those whose place a kernel does not come to are not counted. A report is made from one run: up to
five orders of threads are tried, and the first that is reported counts. `not run` means that this table was made without it.
"""
HONEST = """## Everything honest

Our kernels, the examples that models are shown, and the honest candidates of `tests/adversaries` (not those of host C++, which
leaves no record). In a cell: the number of traces of three calls, each with another order of threads, from the second on with a
rank that comes late; what was reported; and how many events were looked at. {traces} traces with {events:,} events in all:
{reported} have a report.
"""
REPLAYS = """## Replayed graphs

Two calls of three ranks, one that is captured into a CUDA graph, and four replays on changing data with another rank late
each time. Numbers are compared with the problem's reference. The first kernel counts its barriers on the host and passes the
count as an argument, which a graph freezes: the defect that a review found in kernels of ours. (On a GPU:
`tests/gpu/test_graph_replay_gpu.py`.) Not captured are ways that use operators of torch: 13, 16 and 54 with a library's
product, 21, and 82 with many tokens.
"""

if __name__ == "__main__":
    main()
