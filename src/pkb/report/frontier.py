"""Kernels that others have published, judged by the published protocol and by ours: from records, without their files."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pkb.analysis.document import COLUMNS, sample_row
from pkb.analysis.results import read_results
from pkb.analysis.samples import Sample
from pkb.report.breakdown import ORDER
from pkb.report.pages import Pages
from pkb.report.tries import file_safe

AS_PUBLISHED = "published"
"""The plan that follows the published protocol."""
SUFFIX = " (as published)"


class Both(NamedTuple):
    """One file by both protocols; None where a record is missing."""

    ours: Sample | None
    published: Sample | None


@dataclass(frozen=True)
class FrontierRow:
    id: str
    name: str
    hardware: str
    files: int
    both: int
    """Judged by both: what the next five are of."""
    right_as_published: int
    right: int
    reused: int
    """Right by ours but for one thing: the result lies in memory that the next call overwrites. Apart, never among right."""
    faster_as_published: int
    """By point estimate."""
    faster: int
    """Proven."""
    lost: tuple[tuple[str, int], ...]
    """Of those that are right as published only: how they end by ours, in the order of the bars."""
    modes: Mapping[str, int]
    """All files by ours."""
    cells: Mapping[int, Both]
    """By problem, the first file."""


def frontier_rows(folder: Path | None) -> list[FrontierRow]:
    """Of `frontier-*.jsonl`, a file for each collection and plan; none where there are none."""
    paths = sorted(folder.glob("frontier-*.jsonl")) if folder else []
    ours: dict[str, dict[tuple[int, str], Sample]] = {}
    published: dict[str, dict[tuple[int, str], Sample]] = {}
    for path in paths:  # one by one: the same try by two plans is no repetition
        for sample in read_results([path]).samples:
            name = sample.collection.removesuffix(SUFFIX)
            place = published if (sample.evaluation or {}).get("plan") == AS_PUBLISHED else ours
            place.setdefault(name, {})[_identity(sample)] = sample
    names = dict.fromkeys([*ours, *published])
    return [_row(name, ours.get(name, {}), published.get(name, {})) for name in names]


def _identity(sample: Sample) -> tuple[int, str]:
    candidate = (sample.evaluation or {}).get("candidate")
    sha = candidate.get("sha256") if isinstance(candidate, Mapping) else None
    return sample.problem, str(sha or sample.index)


def _row(name: str, ours: Mapping[tuple[int, str], Sample], published: Mapping[tuple[int, str], Sample]) -> FrontierRow:
    every = {key: Both(ours.get(key), published.get(key)) for key in sorted({*ours, *published})}
    pairs = [(one, other) for one, other in every.values() if one and other]
    lost = Counter(one.mode for one, other in pairs if other.is_correct and not one.is_correct)
    modes = Counter(one.mode.value for one in ours.values())
    hardware = Counter(
        str((one.evaluation or {}).get("hardware") or "") for one in [*ours.values(), *published.values()]
    )
    cells: dict[int, Both] = {}
    for (problem, _), both in every.items():
        cells.setdefault(problem, both)
    return FrontierRow(
        id=f"frontier-{file_safe(name).lower()}",
        name=name,
        hardware=hardware.most_common(1)[0][0],
        files=len(every),
        both=len(pairs),
        right_as_published=sum(other.is_correct for _, other in pairs),
        right=sum(one.is_correct for one, _ in pairs),
        reused=sum(one.is_reused for one, _ in pairs),
        faster_as_published=sum(other.speed is not None and other.speed.value > 1 for _, other in pairs),
        faster=sum(one.speed is not None and one.speed.beats(1, proven=True) for one, _ in pairs),
        lost=tuple((mode.value, lost[mode]) for mode in ORDER if lost[mode]),
        modes={mode.value: modes[mode.value] for mode in ORDER if modes[mode.value]},
        cells=cells,
    )


def write_frontier(pages: Pages, rows: Sequence[FrontierRow], *, stems: Mapping[int, str]) -> None:
    numbers = sorted({problem for row in rows for problem in row.cells})
    samples = [found for row in rows for both in row.cells.values() for found in both if found]
    pages.page("frontier.html", "frontier.html", rows=rows, numbers=numbers)
    pages.table(
        "frontier",
        ["name", "hardware", "files", "both", "right_as_published", "right", "reused", "faster_as_published", "faster"],
        [{**vars(row), "lost": None, "modes": None, "cells": None} for row in rows],
    )
    pages.table("frontier_verdicts", [*COLUMNS, "plan"], [_verdict(found, stems) for found in samples])


def _verdict(sample: Sample, stems: Mapping[int, str]) -> dict[str, Any]:
    name, plan = stems.get(sample.problem, ""), str((sample.evaluation or {}).get("plan") or "")
    return sample_row(sample) | {"collection": sample.collection.removesuffix(SUFFIX), "name": name, "plan": plan}
