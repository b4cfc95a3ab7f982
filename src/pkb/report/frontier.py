"""Kernels that others have published, judged by the published protocol and by ours: from records, without their files."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pkb.analysis.document import COLUMNS, sample_row
from pkb.analysis.lost import AS_PUBLISHED, Loss, PlanComparison, compare_plans, identity, is_faster, loss_of, rules_of
from pkb.analysis.modes import FailureMode
from pkb.analysis.published import Published, Solved
from pkb.analysis.results import BadEntry, read_results
from pkb.analysis.samples import Sample
from pkb.report.breakdown import ORDER
from pkb.report.pages import Pages
from pkb.report.tries import file_safe
from pkb.types.plan import PUBLISHED
from pkb.types.verdict import Verdict

NOT_RUN = (FailureMode.UNSUPPORTED, FailureMode.HARNESS_ERROR, FailureMode.TORCH_VERSION)
"""What this machine or its torch cannot run: apart, since elsewhere it may be right."""
ON_CPU = "frontier-cpu"
"""The folder of those that were judged without a GPU, beside those that were judged on one."""
Files = Mapping[tuple[int, str], Sample]


class Both(NamedTuple):
    """One file by both protocols; None where a record is missing."""

    ours: Sample | None
    published: Sample | None

    @property
    def loss(self) -> Loss | None:
        """What it lost between the two; None where it lost nothing, or they cannot be compared."""
        ours, published = self
        if ours is None or published is None or rules_of(ours) != rules_of(published):
            return None
        return loss_of(ours.evaluation or {}) if published.is_correct and not ours.is_correct else None


class ProtocolCounts(NamedTuple):
    """By one protocol; None in place of it where no file was."""

    files: int
    right: int
    faster: int
    """As published by point estimate, by ours proven."""
    untimed: int
    """Right ones without a time."""
    not_run: int


@dataclass(frozen=True)
class FrontierRow:
    id: str
    name: str
    hardware: str
    said: Solved | None
    """What was published for the same model; of CUDA, which is what it is about."""
    files: int
    as_published: ProtocolCounts | None
    ours: ProtocolCounts | None
    reused: int
    """Right by ours but for one thing: the result lies in memory that the next call overwrites. Apart, never among right."""
    doubts: int
    """Verdicts that were reached beside others, and may be others alone."""
    compared: PlanComparison | None
    modes: Mapping[str, int]
    """All files by ours."""
    cells: Mapping[int, Both]
    """By problem, the first file."""
    on_cpu: bool
    """Nothing of it was timed, or will be."""


class Frontier(NamedTuple):
    rows: Sequence[FrontierRow]
    unreadable: Sequence[BadEntry]
    problems: int
    """Of the published figures; 0 where none are shown."""


def frontier_files(folder: Path) -> list[Path]:
    """A file for each collection and plan: what was judged without a GPU, until a GPU has judged some collection by both
    plans, since the pages compare these."""
    on_gpu, on_cpu = (sorted(place.glob("frontier-*.jsonl")) for place in (folder, folder / ON_CPU))
    by_both = any(path.stem.endswith(f"-{PUBLISHED}") for path in on_gpu)
    return on_gpu if by_both or not on_cpu else on_cpu


def read_frontier(folder: Path | None, said: Published | None) -> Frontier:
    paths = frontier_files(folder) if folder else []
    samples = [(path, read_results([path])) for path in paths]  # one by one: the same try by two plans is no repetition
    ours: dict[str, dict[tuple[int, str], Sample]] = {}
    published: dict[str, dict[tuple[int, str], Sample]] = {}
    doubts = Counter[str]()
    for path, found in samples:
        for sample in found.samples:
            name = sample.collection.removesuffix(AS_PUBLISHED)
            place = ours if name == sample.collection else published
            place.setdefault(name, {})[identity(sample)] = sample
        if not found.unreadable:
            doubts.update(_doubtful(path))
    names = dict.fromkeys([*ours, *published])
    rows = [_row(name, ours.get(name, {}), published.get(name, {}), doubts[name], said) for name in names]
    return Frontier(rows, [bad for _, found in samples for bad in found.unreadable], said.problems if said else 0)


def _doubtful(path: Path) -> Iterable[str]:
    for record in map(json.loads, filter(None, path.read_text(encoding="utf-8").split("\n"))):
        right = record["evaluation"]["verdict"] in (Verdict.CORRECT, Verdict.REUSED_OUTPUT)
        if record.get("provisional") and not right:
            yield str(record.get("collection"))


def _row(name: str, ours: Files, published: Files, doubts: int, said: Published | None) -> FrontierRow:
    every = {key: Both(ours.get(key), published.get(key)) for key in sorted({*ours, *published})}
    modes = Counter(one.mode.value for one in ours.values())
    hardware = Counter(
        str((one.evaluation or {}).get("hardware") or "") for one in [*ours.values(), *published.values()]
    )
    model, _, backend = name.partition(" ")
    known = said.models.get(model) if said and backend == "cuda" else None
    cells: dict[int, Both] = {}
    for (problem, _), both in every.items():
        cells.setdefault(problem, both)
    return FrontierRow(
        id=f"frontier-{file_safe(name).lower()}",
        name=name,
        hardware=hardware.most_common(1)[0][0],
        said=known.solved if known else None,
        files=len(every),
        as_published=_judged(published.values(), proven=False),
        ours=_judged(ours.values(), proven=True),
        reused=sum(one.is_reused for one in ours.values()),
        doubts=doubts,
        compared=compare_plans([*ours.values()], [*published.values()]),
        modes={mode.value: modes[mode.value] for mode in ORDER if modes[mode.value]},
        cells=cells,
        on_cpu=all(one.conditions[0] == "cpu" for one in [*ours.values(), *published.values()]),
    )


def _judged(samples: Iterable[Sample], *, proven: bool) -> ProtocolCounts | None:
    found = list(samples)
    right = [sample for sample in found if sample.is_correct]
    return ProtocolCounts(
        files=len(found),
        right=len(right),
        faster=sum(is_faster(sample, proven=proven) for sample in right),
        untimed=sum(sample.speed is None for sample in right),
        not_run=sum(sample.mode in NOT_RUN for sample in found),
    ) if found else None  # fmt: skip


def write_frontier(pages: Pages, found: Frontier, *, stems: Mapping[int, str]) -> None:
    rows = found.rows
    numbers = sorted({problem for row in rows for problem in row.cells})
    pages.page(
        "frontier.html",
        "frontier.html",
        rows=rows,
        numbers=numbers,
        unreadable=found.unreadable,
        problems=found.problems,
    )
    columns = [
        "name", "hardware", "files", "both", "judged_as_published", "right_as_published", "faster_as_published",
        "judged", "right", "faster", "reused", "doubts",
    ]  # fmt: skip
    pages.table("frontier", columns, [_counts(row) for row in rows])
    verdicts = [_verdict(one, both, stems) for row in rows for both in row.cells.values() for one in both if one]
    pages.table("frontier_verdicts", [*COLUMNS, "loss"], verdicts)


def _counts(row: FrontierRow) -> dict[str, Any]:
    theirs, ours = row.as_published, row.ours
    both = row.compared.candidates if row.compared else 0
    told = {"name": row.name, "hardware": row.hardware, "files": row.files, "both": both}
    published = {"judged_as_published": theirs.files, "right_as_published": theirs.right} if theirs else {}
    fast = {"faster_as_published": theirs.faster} if theirs else {}
    own = {"judged": ours.files, "right": ours.right, "faster": ours.faster} if ours else {}
    return told | published | fast | own | {"reused": row.reused, "doubts": row.doubts}


def _verdict(sample: Sample, both: Both, stems: Mapping[int, str]) -> dict[str, Any]:
    name, loss = stems.get(sample.problem, ""), both.loss.value if both.loss and sample is both.ours else ""
    return sample_row(sample) | {"collection": sample.collection.removesuffix(AS_PUBLISHED), "name": name, "loss": loss}
