"""Keeps the results of `lint_runs.py` in docs/records/lint.jsonl, and makes docs/lint.md from them: one row per problem, with
the nearest null candidate over all its cases and secrets.

    python benchmarks/lint_runs.py --out out/lint; python benchmarks/lint_table.py out/lint/present.jsonl

A record is one case: the smallest margin of each null candidate over all secrets. A run over some problems needs no rows of
the others. If a case is linted again, the nearest margin stays, unless the problem has changed. Without rows the page is made
again.
"""

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lint_runs import versions_of

from pkb.problems import default_registry
from pkb.problems.suite import suite

ROOT = Path(__file__).resolve().parents[1]
RECORDS, PAGE = ROOT / "docs" / "records" / "lint.jsonl", ROOT / "docs" / "lint.md"
MARK = "<!-- below: made by benchmarks/lint_table.py -->"
Row = dict[str, Any]
Record = dict[str, Any]


def ratio(value: Any) -> float:
    return math.inf if value in ("inf", None) else float(value)


def short(value: float) -> float | str:
    """As JSON has it, with three digits."""
    return "inf" if math.isinf(value) else float(f"{value:.3g}")


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
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def key(record: Record) -> tuple[int, str, int, str]:
    return record["problem_id"], record["size"], record["ranks"], record["dtype"]


def case(record: Record) -> str:
    return f"{record['size']}, {record['ranks']} ranks, {record['dtype']}"


def folded(rows: Iterable[Row], suite_version: int) -> list[Record]:
    """One record for each case of these rows of null candidates."""
    cases: dict[tuple[int, str, int, str], list[Row]] = defaultdict(list)
    for row in rows:
        if not row["must_pass"]:
            cases[key(row)].append(row)
    return [_record(found, suite_version) for found in cases.values()]


def _record(found: list[Row], suite_version: int) -> Record:
    nulls = [row for row in found if not row["tolerated"]]
    # Within one case: honest rounding of bf16 says nothing about a null candidate of float32.
    gaps = [ratio(row["margin"]) / ratio(row["honest_ratio"]) for row in nulls if row["honest_ratio"]]
    margins = {
        name: short(min(ratio(row["margin"]) for row in nulls if row["null_candidate"] == name))
        for name in dict.fromkeys(row["null_candidate"] for row in nulls)
    }
    record = {name: found[0][name] for name in ("problem_id", "name", "versions", "size", "ranks", "dtype")}
    record |= {
        "suite": suite_version,
        "secrets": len({row["round"] for row in found}),
        "tried": len(nulls),
        "passed": sum(row["passed"] for row in nulls),
        "honest": short(max(ratio(row["honest_ratio"]) for row in found)),
        "gap": short(min(gaps)) if gaps else None,
        "margins": margins,
    }
    tolerated = [ratio(row["margin"]) for row in found if row["tolerated"]]
    notes = sorted({row["note"] for row in nulls if row["null_candidate"] == "no_communication" and row["note"]})
    return record | ({"int8": short(min(tolerated))} if tolerated else {}) | ({"silent": notes[0]} if notes else {})


def merged(before: Iterable[Record], new: Iterable[Record]) -> list[Record]:
    found = {key(record): record for record in before}
    for record in new:
        known = found.get(key(record))
        same = known is not None and known["versions"] == record["versions"]
        found[key(record)] = _nearer(known, record) if known is not None and same else record
    return [record for _, record in sorted(found.items())]


def _nearer(known: Record, new: Record) -> Record:
    """Of the same problem by other secrets: what is worse of each figure. The same rows once more change nothing."""
    worst = {name: max(known[name], new[name]) for name in ("secrets", "tried", "passed")}
    worst["honest"] = short(max(ratio(known["honest"]), ratio(new["honest"])))
    for name in ("gap", "int8"):
        values = [ratio(record[name]) for record in (known, new) if record.get(name) is not None]
        worst |= {name: short(min(values))} if values else {}
    margins = {
        name: short(min(ratio(margin), ratio(known["margins"].get(name)))) for name, margin in new["margins"].items()
    }
    return new | worst | {"margins": margins}


def nearest(record: Record) -> tuple[float, str]:
    name, margin = min(record["margins"].items(), key=lambda item: ratio(item[1]))
    return ratio(margin), name


def table(records: list[Record]) -> str:
    by_problem: dict[tuple[int, str], list[Record]] = defaultdict(list)
    for record in records:
        by_problem[record["problem_id"], record["name"]].append(record)
    head = [
        "problem", "cases", "nearest null candidate", "in", "margin", "without communication", "honest, worst", "gap", "int8",
    ]  # fmt: skip
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for (number, name), found in sorted(by_problem.items()):
        near = min(found, key=lambda record: nearest(record)[0])
        silent = min(found, key=lambda record: ratio(record["margins"]["no_communication"]))
        gaps = [ratio(record["gap"]) for record in found if record["gap"] is not None]
        int8 = [ratio(record["int8"]) for record in found if "int8" in record]
        how = f" ({silent['silent']})" if "silent" in silent else ""
        cells = [
            f"{number:02d}_{name}", str(len(found)), nearest(near)[1], case(near), words(nearest(near)[0]),
            words(ratio(silent["margins"]["no_communication"])) + how, words(max(ratio(r["honest"]) for r in found)),
            words(min(gaps)) if gaps else "-", words(min(int8)) if int8 else "-",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def summary(records: list[Record]) -> str:
    near = min(records, key=lambda record: nearest(record)[0])
    where = defaultdict(list)
    for record in records:
        where[record["suite"], record["size"], record["ranks"]].append(record)
    lines = [
        f"{sum(r['tried'] for r in records)} null candidates in {len(records)} cases; {sum(r['passed'] for r in records)} "
        f"pass. The nearest ({nearest(near)[1]} in problem {near['problem_id']}, {case(near)}) has "
        f"{words(nearest(near)[0])} times the tolerated error.",
        "",
        "| suite version | size | ranks | problems | secrets each |",
        "|---|---|---|---|---|",
    ]
    for (version, size, ranks), found in sorted(where.items()):
        secrets = sorted({record["secrets"] for record in found})
        often = f"{secrets[0]}" if len(secrets) == 1 else f"{secrets[0]} to {secrets[-1]}"
        lines.append(f"| {version} | {size} | {ranks} | {len(found)} | {often} |")
    older = outdated(records)
    since = f"Changed since, and not linted as they are now: {', '.join(map(str, older))}." if older else ""
    return "\n".join(lines) + "\n\n" + (f"{since}\n\n" if since else "")


def outdated(records: list[Record]) -> list[int]:
    """Problems, one case of which at least was linted with another version of the problem than it has now."""
    versions = {problem.id: versions_of(problem) for problem in default_registry().all()}
    return sorted({r["problem_id"] for r in records if r["versions"] != versions.get(r["problem_id"])})


def page(before: str, records: list[Record]) -> str:
    """What people wrote above the mark stays."""
    return f"{before.partition(MARK)[0]}{MARK}\n\n{summary(records)}{table(records)}"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("rows", type=Path, nargs="*")
    options.add_argument("--records", type=Path, default=RECORDS)
    options.add_argument("--out", type=Path, default=PAGE)
    args = options.parse_args()
    new = [record for path in args.rows for record in folded(read(path), suite().version)]
    records = merged(read(args.records), new)
    args.records.write_text("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))
    args.out.write_text(page(args.out.read_text() if args.out.exists() else "", records))
    print(summary(records).partition("\n")[0])
    return 1 if any(record["passed"] for record in records) else 0


if __name__ == "__main__":
    raise SystemExit(main())
