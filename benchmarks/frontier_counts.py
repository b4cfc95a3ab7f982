"""What the records of benchmarks/frontier.py say of each tree, counted: for the page that is made of them."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pkb.analysis.lost import AS_PUBLISHED, PlanComparison, compare_plans
from pkb.analysis.modes import FailureMode
from pkb.analysis.published import published
from pkb.analysis.results import read_results
from pkb.analysis.samples import Sample
from pkb.types.verdict import Verdict

COUNTS = "frontier-trees.json"


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
        """By plan, deadlocks and the like that were seen beside others only."""
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
    def to_judge(self) -> int:
        """Files that hold an answer for a problem that exists and that these ranks can have."""
        if "files" not in self.counts:
            return max(len(self.ours), len(self.as_published))
        left_out = sum(self.counts.get(why, 0) for why in ("gone", "refused", "empty", "impossible"))
        return int(self.counts["files"]) - left_out

    def is_whole(self, samples: Sequence[Sample]) -> bool:
        return len(samples) >= self.to_judge

    @property
    def is_cuda(self) -> bool:
        return self.name.endswith(" cuda")


def trees_of(folder: Path) -> list[Tree]:
    files = sorted(folder.glob("frontier-*.jsonl"))
    if not files:
        return []
    found = read_results(files)
    if found.unreadable:
        raise ValueError(f"a record that cannot be read: {found.unreadable[0]}")
    collections = found.collections()
    counts = json.loads((folder / COUNTS).read_text()) if (folder / COUNTS).exists() else {}
    names = list(dict.fromkeys(name.removesuffix(AS_PUBLISHED) for name in collections))
    doubts: dict[str, Counter[str]] = {}
    for record in (json.loads(line) for path in files for line in path.read_text().splitlines()):
        said = record["evaluation"]
        if record.get("provisional") and said["verdict"] not in (Verdict.CORRECT, Verdict.REUSED_OUTPUT):
            doubts.setdefault(record["collection"], Counter())[said["plan"]] += 1
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
    speeds = [sample.speed for sample in samples if sample.speed is not None]
    return sum(speed.beats(1, proven=True) if proven else speed.value > 1 for speed in speeds)


def is_timed(sample: Sample) -> bool:
    return bool((sample.evaluation or {}).get("timing"))


def untimed(samples: Iterable[Sample]) -> int:
    return sum((sample.is_correct or sample.is_reused) and not is_timed(sample) for sample in samples)


def count(samples: Iterable[Sample], mode: FailureMode) -> int:
    return sum(sample.mode is mode for sample in samples)


def could(samples: Iterable[Sample]) -> list[Sample]:
    """Without what this platform or this torch cannot run: nobody's failure."""
    return [sample for sample in samples if sample.is_judged and sample.mode is not FailureMode.TORCH_VERSION]


def share_of_right(samples: Sequence[Sample]) -> float:
    return right(samples) / max(1, len(could(samples)))
