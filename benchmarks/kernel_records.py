"""Verdicts on our own kernels, case by case: which verdict shows that a kernel is correct, which one has its times, and how
old they are.

Whether a case is correct is decided by the last verdict of the whole plan, race checks included. Its times come from the last
verdict that has any: the same one, or one of `verdict_table.py --times-only`, which says nothing about races, and about what
moves the data only if a library was seen. A later failure outweighs both. No verdict is reused silently: one on another text
of the kernel, with another kit, of another version of the problem or of an earlier judge is marked as such, unless that judge
differs only in how it takes times. If an earlier judge took the same samples and concluded otherwise, they are concluded
again.
"""

import contextlib
import fcntl
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from pkb.candidates import source
from pkb.judge.timing.other import decision
from pkb.judge.timing.starts import affordable, is_near, known_below_us
from pkb.judge.timing.statistics import Ratio, start_half
from pkb.kit.fingerprint import fingerprint
from pkb.problems import get
from pkb.problems.suite import suite
from pkb.types.timing import Decision

Row = dict[str, Any]
TIMES_ONLY = "times-only"
"""The plan of `verdict_table.py --times-only`."""
OTHER_TIMES_ALONE = {5, 6, 7}
"""Versions of the judge that compare, and look for races on a GPU, as the version before did (docs/suite.md)."""
CONCLUDED_ANEW = {6}
"""Of these, those that take samples as the version before did."""
SEVERAL_STARTS = {7}
"""And those that do so but for a gain near 1, which they measure in several starts of the ranks."""
START_S = 5.0
"""Of ranks, where a size came second and found them started."""
SOLUTIONS = Path(__file__).parents[1] / "solutions"
MOST_IN_A_ROW = 10
"""Tries without a verdict: then it is the machine, and going on would only spend its time."""
MACHINE_FAILS = 4
"""The exit status of a program that gives up for this reason."""


class Case(NamedTuple):
    problem: int
    size: str
    ranks: int


@dataclass
class Known:
    """What is known about one case."""

    judged: Row | None = None
    times: Row | None = None
    """The last with times, whatever came since: kept, since they can be taken on few machines."""
    before: Row | None = None
    """The last with times of a judge before that of `times`."""
    failed: Row | None = None
    """What came last, if that was a failure; only a verdict of the whole plan takes it back."""

    @property
    def timed(self) -> Row | None:
        """Whose times count."""
        return self.times if self.failed is None else None

    def add(self, row: Row) -> None:
        if row["verdict"] == "harness_error":
            return
        if not fine(row):
            self.judged, self.failed = None, row
            return
        if is_whole(row):
            self.judged, self.failed = row, None
        if row["timing"] and self.failed is None:
            if self.times is not None and judge_of(self.times) < judge_of(row):
                self.before = self.times
            self.times = row

    def rows(self) -> list[Row]:
        kept = [row for row in (self.before, self.judged, self.times, self.failed) if row is not None]
        return sorted({id(row): row for row in kept}.values(), key=taken_at)


def read_rows(path: Path) -> list[Row]:
    """The rows of a file of JSON lines, which need not exist."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue  # cut off while it was written
    return rows


def add_row(path: Path, row: Row) -> None:
    """Appends a row on a new line, also after a line that was cut off."""
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(row, default=str).encode() + b"\n")


def write_whole(path: Path, text: str) -> None:
    """Or not at all, whoever ends this."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Of two programs that replace files of one folder, each would take away what the other has just written."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        sys.exit(f"another program writes its records to {folder}: wait for its end, or choose another --out")
    finally:
        os.close(held)


class Tries:
    """Ends the program once so many in a row have given no verdict."""

    def __init__(self) -> None:
        self.in_a_row = 0

    def gave(self, verdict: str | None) -> None:
        self.in_a_row = self.in_a_row + 1 if verdict in (None, "harness_error") else 0
        if self.in_a_row >= MOST_IN_A_ROW:
            print(f"{self.in_a_row} tries in a row without a verdict: see `pkb doctor`", file=sys.stderr, flush=True)
            sys.exit(MACHINE_FAILS)


def read(paths: Iterable[Path]) -> dict[Case, Known]:
    """Reads verdicts without their profiles, which are large."""
    rows = [row for path in paths for row in read_rows(path.resolve(strict=True))]
    cases: dict[Case, Known] = {}
    for row in sorted(rows, key=taken_at):
        row.pop("profile", None)
        cases.setdefault(Case(row["problem"]["id"], row["size"], row["ranks"]), Known()).add(row)
    return cases


def kept(cases: dict[Case, Known]) -> Iterator[Row]:
    """The verdicts that the tables need."""
    for case in sorted(cases):
        yield from cases[case].rows()


def seconds_of(rows: Iterable[Row], *, timed: bool = True) -> float | None:
    """What one of these takes on average."""
    stages = [row["stage_seconds"] for row in rows if row.get("stage_seconds")]
    return fmean(sum(s for name, s in one.items() if timed or name != "timing") for one in stages) if stages else None


def expected_s(rows: Iterable[Row], case: Case, *, timed: bool) -> float | None:
    """How long a kernel will probably take: by its own last verdict, plus the starts that it did without, or by others'."""
    ended = (row for row in rows if row.get("stage_seconds") and row["verdict"] != "harness_error")
    known = [row for row in ended if row["timing"] or not timed]
    alike = [row for row in known if (row["size"], row["ranks"]) == (case.size, case.ranks)]
    own = [row for row in alike if row["problem"]["id"] == case.problem]
    took = seconds_of(own[-1:] or alike, timed=timed)
    return took + more_starts_s(own[-1]) if took and timed and own else took


def more_starts_s(row: Row) -> float:
    """For what was measured in one start and will be in several: each of them warms up and compiles anew."""
    if not lacks_starts(row, suite().judge_version):
        return 0.0
    each = row["stage_seconds"].get("start", START_S) + row["stage_seconds"]["timing"]
    return (affordable(each) - 1) * each


def taken_at(row: Row) -> str:
    return str(row.get("started_at", ""))


def fine(row: Row) -> bool:
    """Whether there is no objection to a verdict. What moved the data may only be unknown if it was not observed."""
    seen = ("custom", "unknown") if row["plan"] == TIMES_ONLY else ("custom",)
    return bool(row["verdict"] == "correct" and row["communication"] in seen)


def is_whole(row: Row) -> bool:
    """Whether the verdict includes the race checks."""
    return row["plan"] == "standard" and any(check.startswith("races: ") for check in row["checks"])


def judge_of(row: Row) -> int:
    """The judge's version; 0 before judges had versions."""
    return int((row.get("suite") or {}).get("judge", 0))


def kit_of(row: Row) -> str:
    """The kit's hash; empty before verdicts named it."""
    return str((row.get("environment") or {}).get("kit", ""))


@cache
def present_version(file: str) -> str:
    path = SOLUTIONS / file
    return source.read(path).sha256 if path.exists() else ""


def comparing(judge: int) -> int:
    """The first judge version that compares outputs and looks for races as this one does."""
    while judge in OTHER_TIMES_ALONE:
        judge -= 1
    return judge


def sampling(judge: int) -> int:
    """The first judge version that takes samples, within one start, as this one does."""
    while judge in CONCLUDED_ANEW | SEVERAL_STARTS:
        judge -= 1
    return judge


def concluded(row: Row) -> Row:
    """The times of a verdict; those of judge 5 with the intervals and decisions of judge 6. From the same samples judge 6
    concludes the same, but adds the difference between starts to the interval, so the stored interval is all that is
    needed."""
    timing: Row = row["timing"]
    if judge_of(row) + 1 not in CONCLUDED_ANEW:
        return timing
    by_kind = timing.get("speedup_by_kind") or {}
    medians = {kind: (one["reference_us"], one["candidate_us"]) for kind, one in by_kind.items()}
    shares = {kind: one["weight"] for kind, one in by_kind.items()}
    start = start_half(medians or {"": (timing["reference_us"], timing["candidate_us"])}, shares or {"": 1.0})
    before, other = _ratio(timing), timing.get("other")
    now = before.widened(start)
    main = Decision(timing["decision"]) if now.decision is Decision.FASTER else now.decision
    kinds = {
        kind: one | _ends(_ratio(one).widened(start_half({kind: medians[kind]}, shares)))
        for kind, one in by_kind.items()
    }
    if other:
        both = _ratio(other)
        half = math.sqrt(max(0.0, math.log(both.high / both.value) ** 2 - math.log(before.high / before.value) ** 2))
        apart, widened = both.value / before.value, both.widened(start)
        ends = Ratio(apart, apart * math.exp(-half), apart * math.exp(half))
        said = decision(widened, ends, main, timing["window_speedup_low"])
        other = other | _ends(widened) | {"decision": str(said)}
    return timing | _ends(now) | {"decision": str(main), "speedup_by_kind": kinds, "other": other}


def _ratio(said: Row) -> Ratio:
    return Ratio(said["speedup"], said["speedup_low"], said["speedup_high"])


def _ends(ratio: Ratio) -> Row:
    return {"speedup_low": ratio.low, "speedup_high": ratio.high}


def lacks_starts(row: Row, judge: int) -> bool:
    """Whether it has a gain that `judge` would have measured in several starts."""
    if not judge_of(row) < min(SEVERAL_STARTS) <= judge:
        return False
    timing, layer = concluded(row), get(row["problem"]["id"]).taxonomy.layer
    unknown = timing["reference_us"] >= known_below_us(layer, shared_gpu=True)
    return unknown and not timing.get("start_rounds") and is_near(_ratio(timing))


def earlier(row: Row, judge: int, *, times: bool) -> str:
    """What is older than the present `judge` in the times of a verdict, or in the rest of it, with its date; or nothing."""
    problem, first_alike = get(row["problem"]["id"]), sampling if times else comparing
    changed = {
        "judge": first_alike(judge_of(row)) != first_alike(judge),
        "number of starts": times and lacks_starts(row, judge),
        "kernel": row["candidate"]["sha256"] != present_version(row["candidate"]["file"]),
        "kit": kit_of(row) != fingerprint(),
        "problem": row["problem"]["version"] != problem.version,
        "baseline": row["problem"].get("baseline_version") not in (None, problem.baseline_version),
    }
    words = [name for name, has in changed.items() if has]
    return f"{taken_at(row)[:10]} (other {', '.join(words)})" if words else ""


def judge_words(judge: int) -> str:
    return f"judge version {judge}" if judge else "a judge without a version"


def judges_words(rows: Iterable[Row], judge: int) -> str:
    """Which judges gave these verdicts; `judge` if there are none."""
    return " and ".join(map(judge_words, sorted({judge_of(row) for row in rows}))) or judge_words(judge)


def anew_words(rows: Iterable[Row]) -> str:
    """Which judge's intervals these are, where they were concluded again."""
    older = sorted({judge_of(row) for row in rows if judge_of(row) + 1 in CONCLUDED_ANEW})
    return "".join(
        f" (intervals and decisions on samples of {judge_words(one)} by {judge_words(one + 1)}'s rule)" for one in older
    )


def newest_judge(cases: dict[Case, Known]) -> int:
    return max((judge_of(row) for row in kept(cases)), default=0)
