"""Reads the records of benchmarks/frontier.py and counts the outcomes of each tree, for the page that is made from them."""

import csv
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pkb.analysis.lost import AS_PUBLISHED, PlanComparison, compare_plans, is_faster, is_published_plan
from pkb.analysis.modes import FailureMode
from pkb.analysis.published import published
from pkb.analysis.results import read_results
from pkb.analysis.samples import Sample
from pkb.types.plan import PUBLISHED
from pkb.types.verdict import Verdict

COUNTS = "frontier-trees.json"
COST = "frontier-cost.json"
OURS = "standard"
"""The plan of ours; what was judged by another one stands in its place, and the page says by which."""

H200 = "h200-older-judge.csv"
"""Beside records of platform cpu: verdicts of an older judge on files of one tree, plan standard at size paper on an H200. What
it says of overwritten outputs has the name that they have now."""
CLASSES = {
    "right": ("correct",), "overwritten output": ("reused_output",), "wrong": ("wrong", "race"), "deadlock": ("deadlock",),
    "run-time error": ("runtime_error", "crash", "load_error"), "does not build": ("compile_error",),
}  # fmt: skip


def read_records(path: Path) -> list[dict[str, Any]]:
    """Of one file, in its order. A last line that was cut off while it was written is no record, and said; any other line that
    cannot be read is an error."""
    found = []
    lines = path.read_text().split("\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            found.append(json.loads(line))
        except ValueError as error:
            if number < len(lines):
                raise ValueError(f"{path}:{number} is no record: {error}") from error
            print(f"{path}: the last record was cut off, and is left out", file=sys.stderr)
    return found


class Tree:
    """One collection of records, by both plans."""

    def __init__(
        self,
        name: str,
        ours: list[Sample],
        as_published: list[Sample],
        *,
        counts: dict[str, Any],
        provisional: Counter[str],
    ) -> None:
        self.name, self.ours, self.as_published, self.counts = name, ours, as_published, counts
        self.provisional = provisional
        """By `PUBLISHED` and `OURS`, deadlocks and the like that were seen beside others only."""
        self.model = published().models.get(name.partition(" ")[0])
        self.compared: PlanComparison | None = compare_plans(ours, as_published)

    @property
    def paths(self) -> Counter[str]:
        """As `frontier.py --paths` counted them, or as the verdicts say: without tree-sitter those of CUDA are unknown."""
        if said := self.counts.get("paths"):
            return Counter(said)
        return Counter(
            path for each in self.ours or self.as_published for path in set((each.evaluation or {}).get("paths", ()))
        )

    @property
    def path_files(self) -> int:
        """What `paths` is of."""
        return self.counts["files"] if self.counts.get("paths") else len(self.ours or self.as_published)

    @property
    def has_paths(self) -> bool:
        """Whether the texts were read: without tree-sitter, CUDA is `unknown`, and what is not seen is not absent."""
        return self.path_files > 0 and self.paths["unknown"] <= self.path_files / 10

    @property
    def has_all_paths(self) -> bool:
        return self.has_paths and (bool(self.counts.get("paths")) or self.is_whole(self.ours or self.as_published))

    @property
    def to_judge(self) -> int:
        """Files that hold an answer for a problem that exists and that these ranks can have."""
        if "files" not in self.counts:
            return max(len(self.ours), len(self.as_published))
        left_out = sum(self.counts.get(why, 0) for why in ("gone", "refused", "empty", "impossible", "repeated"))
        return int(self.counts["files"]) - left_out

    def is_whole(self, samples: Sequence[Sample]) -> bool:
        return bool(samples) and len(samples) >= self.to_judge

    def is_settled(self, plan: str) -> bool:
        """Judged to the end, and nothing in doubt: what is judged first is no sample of the rest."""
        return self.is_whole(self.as_published if plan == PUBLISHED else self.ours) and not self.provisional[plan]

    @property
    def is_cuda(self) -> bool:
        return self.name.endswith(" cuda")


def trees_of(folder: Path) -> list[Tree]:
    files = sorted(folder.glob("frontier-*.jsonl"))
    if not files:
        return []
    records = [record for path in files for record in read_records(path)]
    found = read_results(files)
    # Of those that are no JSON, `read_records` has let pass only what was cut off.
    if unreadable := [entry for entry in found.unreadable if not entry.why.startswith("not JSON")]:
        raise ValueError(f"a record that cannot be read: {unreadable[0]}")
    collections = found.collections()
    counts = json.loads((folder / COUNTS).read_text()) if (folder / COUNTS).exists() else {}
    names = dict.fromkeys([*(name.removesuffix(AS_PUBLISHED) for name in collections), *counts])  # judged or not
    doubts: dict[str, Counter[str]] = {}
    for record in records:
        said = record["evaluation"]
        if record.get("provisional") and said["verdict"] not in (Verdict.CORRECT, Verdict.REUSED_OUTPUT):
            plan = PUBLISHED if said["plan"] == PUBLISHED else OURS
            doubts.setdefault(record["collection"], Counter())[plan] += 1
    return [
        Tree(
            name,
            collections.get(name, []),
            collections.get(name + AS_PUBLISHED, []),
            counts=counts.get(name, {}),
            provisional=doubts.get(name, Counter()),
        )
        for name in names
    ]


def right(samples: Iterable[Sample]) -> int:
    return sum(sample.is_correct for sample in samples)


def faster(samples: Iterable[Sample], *, proven: bool) -> int:
    return sum(is_faster(sample, proven=proven) for sample in samples)


def is_timed(sample: Sample) -> bool:
    return bool((sample.evaluation or {}).get("timing"))


def untimed(samples: Iterable[Sample]) -> int:
    return sum(sample.is_correct and not is_timed(sample) for sample in samples)


def count(samples: Iterable[Sample], mode: FailureMode) -> int:
    return sum(sample.mode is mode for sample in samples)


def could(samples: Iterable[Sample]) -> list[Sample]:
    """Without what this platform or this torch cannot run, which is nobody's failure, and as published without what a rule of
    ours refuses: the published protocol would have run it."""
    return [
        sample
        for sample in samples
        if sample.is_judged
        and sample.mode is not FailureMode.TORCH_VERSION
        and not (sample.mode is FailureMode.REJECTED and is_published_plan(sample))
    ]


def could_not(samples: Sequence[Sample]) -> int:
    """Right or wrong elsewhere, for all that is known here."""
    return len(samples) - len(could(samples))


def share_of_right(samples: Sequence[Sample]) -> float:
    return right(samples) / max(1, len(could(samples)))


def class_of(verdict: str) -> str:
    return next((name for name, verdicts in CLASSES.items() if verdict in verdicts), "other")


Verdicts = dict[tuple[str, int], str]
"""By collection and problem."""


def verdicts_of(trees: Iterable[Tree]) -> Verdicts:
    return {
        (tree.name, sample.problem): str((sample.evaluation or {}).get("verdict"))
        for tree in trees
        for sample in tree.ours
    }


def older_verdicts(folder: Path) -> Verdicts:
    """Of the older judge."""
    if not (folder / H200).exists():
        return {}
    with (folder / H200).open() as older:
        return {(row["collection"], int(row["problem"])): row["verdict"] for row in csv.DictReader(older)}


def classes_of(there: Verdicts, here: Verdicts) -> Counter[tuple[str, str]]:
    """Of files with a verdict in both places: their classes."""
    return Counter((class_of(there[key]), class_of(here[key])) for key in there.keys() & here.keys())
