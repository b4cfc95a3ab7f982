"""Verdicts on our own kernels, case by case: which one says that a kernel is right, which one has its times, how old they are.

A case is judged by the last verdict of the whole plan, with races looked for, and timed by the last one that has times: the
same, or one of `verdict_table.py --times-only`, which says nothing of races. What fails later outweighs both. Nothing is taken
over silently: a verdict on another text of the kernel, of another version of the problem or of an earlier judge says so.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pkb.candidates import source
from pkb.problems import get

Row = dict[str, Any]
SOLUTIONS = Path(__file__).parents[1] / "solutions"


class Case(NamedTuple):
    problem: int
    size: str
    ranks: int


@dataclass
class Known:
    """Of one case."""

    judged: Row | None = None
    timed: Row | None = None
    before: Row | None = None
    """The last with times of a judge before that of `timed`."""
    failed: Row | None = None
    """What came last, if that was a failure; only a verdict of the whole plan takes it back."""

    def add(self, row: Row) -> None:
        if row["verdict"] == "harness_error":
            return
        if not fine(row):
            self.judged = self.timed = None
            self.failed = row
            return
        if is_whole(row):
            self.judged, self.failed = row, None
        if row["timing"] and self.failed is None:
            if self.timed is not None and judge_of(self.timed) < judge_of(row):
                self.before = self.timed
            self.timed = row

    def rows(self) -> list[Row]:
        kept = [row for row in (self.before, self.judged, self.timed, self.failed) if row is not None]
        return sorted({id(row): row for row in kept}.values(), key=taken_at)


def read(paths: Iterable[Path]) -> dict[Case, Known]:
    """Without profiles, which are large."""
    rows = [json.loads(line) for path in paths for line in path.read_text().splitlines() if line]
    cases: dict[Case, Known] = {}
    for row in sorted(rows, key=taken_at):
        row.pop("profile", None)
        cases.setdefault(Case(row["problem"]["id"], row["size"], row["ranks"]), Known()).add(row)
    return cases


def kept(cases: dict[Case, Known]) -> Iterator[Row]:
    """The verdicts that tables need."""
    for case in sorted(cases):
        yield from cases[case].rows()


def taken_at(row: Row) -> str:
    return str(row.get("started_at", ""))


def fine(row: Row) -> bool:
    return bool(row["verdict"] == "correct" and row["communication"] == "custom")


def is_whole(row: Row) -> bool:
    """Races were looked for."""
    return row["plan"] == "standard" and any(check.startswith("races: ") for check in row["checks"])


def judge_of(row: Row) -> int:
    """0: before judges had versions."""
    return int((row.get("suite") or {}).get("judge", 0))


@cache
def present_version(file: str) -> str:
    path = SOLUTIONS / file
    return source.read(path).sha256 if path.exists() else ""


def earlier(row: Row, judge: int) -> str:
    """What is old about a verdict, where `judge` is the present one: with its date, or nothing."""
    problem = get(row["problem"]["id"])
    changed = {
        "judge": judge_of(row) != judge,
        "kernel": row["candidate"]["sha256"] != present_version(row["candidate"]["file"]),
        "problem": row["problem"]["version"] != problem.version,
        "baseline": row["problem"].get("baseline_version") not in (None, problem.baseline_version),
    }
    words = [name for name, has in changed.items() if has]
    return f"{taken_at(row)[:10]} (other {', '.join(words)})" if words else ""


def judge_words(judge: int) -> str:
    return f"judge version {judge}" if judge else "a judge without a version"


def newest_judge(cases: dict[Case, Known]) -> int:
    return max((judge_of(row) for row in kept(cases)), default=0)
