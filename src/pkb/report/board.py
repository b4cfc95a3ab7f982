"""The leaderboard's figures, in three readings: a single shot, the best of k, an agent's loop."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pkb.analysis.estimate import geometric_mean
from pkb.analysis.groups import Group, group_by
from pkb.analysis.ranking import Place, Shares, ranked
from pkb.analysis.samples import Sample, total
from pkb.analysis.score import Figure, Share, believed_speedup, fast_curve, fast_share, figure, share_at
from pkb.problems.base import Problem
from pkb.report.against import other_speedup
from pkb.report.contenders import Contender

View = Literal["single", "best", "agent"]
VIEWS: Mapping[View, str] = {"single": "Single shot", "best": "Best of k", "agent": "Agent"}
HEAT_AXES = ("parallelism", "layer", "pattern")


@dataclass(frozen=True)
class BoardRow:
    """Figures of one contender in one reading. None means that it cannot be said, never zero."""

    contender: Contender
    view: View
    k: int
    problems: int
    """Problems with a judged sample: the denominator."""
    not_judged: int
    correct: Share | None
    published_correct: Share | None
    """With reused outputs counted as right, as by the published protocol."""
    custom: Share | None
    """Correct by kernels of its own."""
    library: Share | None
    """Correct by calling the library it was to replace: counted apart."""
    faster: Share | None
    custom_faster: Share | None
    curve: tuple[tuple[float, Share], ...]
    """fast_p, proven; empty where nothing correct was timed."""
    speedup: Figure | None
    custom_speedup: Figure | None
    other_speedup: Figure | None
    """Against the reference, of those that were timed against the problem's baseline as well."""
    utilisation: Figure | None
    reference_utilisation: Figure | None
    untimed: int
    cost_usd: float | None
    tokens: float | None
    steps: float | None
    """Mean number of a model's answers for one try."""

    place: Place | None = None
    """None where nothing was judged, and by the published protocol."""

    @property
    def standing(self) -> Shares:
        return Shares(*(share.value if share else None for share in (self.faster, self.custom, self.correct)))


@dataclass(frozen=True)
class HeatMap:
    words: list[str]
    rows: dict[str, dict[str, Group]]
    """By contender and word: groups with a judged problem."""


def board(everybody: Sequence[Contender]) -> dict[View, list[BoardRow]]:
    rows: dict[View, list[BoardRow]] = {view: [] for view in VIEWS}
    for contender in everybody:
        if contender.is_agent:
            rows["agent"].append(_row(contender, "agent", k=1, speeds=contender.samples))
            continue
        rows["single"].append(_row(contender, "single", k=1, speeds=contender.firsts))
        if contender.most_tries > 1:
            rows["best"].append(_row(contender, "best", k=contender.most_tries, speeds=contender.samples))
    return {view: _placed(found) for view, found in rows.items()}


def _placed(rows: Sequence[BoardRow]) -> list[BoardRow]:
    """Those that were judged as published come last and have no place: by other rules more is right."""
    ours, as_published = ([row for row in rows if row.contender.is_as_published is which] for which in (False, True))
    placed = [replace(row, place=place) for place, row in ranked(ours, lambda row: row.standing)]
    return placed + [row for _, row in ranked(as_published, lambda row: row.standing)]


def _row(contender: Contender, view: View, *, k: int, speeds: Sequence[Sample]) -> BoardRow:
    samples = contender.samples
    correct = share_at(samples, lambda sample: sample.is_correct, k=k)
    steps = [each.step_count for each in contender.tries if each.steps]
    return BoardRow(
        contender=contender,
        view=view,
        k=k,
        problems=correct.problems if correct else 0,
        not_judged=sum(not sample.is_judged for sample in samples),
        correct=correct,
        published_correct=share_at(samples, lambda sample: sample.is_correct or sample.is_reused, k=k),
        custom=share_at(samples, lambda sample: sample.is_custom, k=k),
        library=share_at(samples, lambda s: s.is_correct and s.communication == "library", k=k),
        faster=fast_share(samples, 1.0, k=k),
        custom_faster=fast_share(samples, 1.0, k=k, custom=True),
        curve=tuple((fast_curve(samples, k=k) or {}).items()),
        speedup=figure(speeds, believed_speedup, geometric_mean),
        custom_speedup=figure([s for s in speeds if s.is_custom], believed_speedup, geometric_mean),
        other_speedup=figure(speeds, other_speedup, geometric_mean),
        utilisation=figure(speeds, lambda sample: sample.utilisation, statistics.median),
        reference_utilisation=figure(speeds, lambda sample: sample.reference_utilisation, statistics.median),
        untimed=sum(sample.is_correct and sample.speed is None for sample in samples),
        cost_usd=total(sample.cost_usd for sample in samples),
        tokens=total(sample.tokens for sample in samples),
        steps=statistics.fmean(steps) if steps else None,
    )


def heat_map(everybody: Sequence[Contender], problems: Mapping[int, Problem]) -> dict[str, HeatMap]:
    """By axis: the share of problems correct at one try, and of how many."""
    maps = {}
    for axis in HEAT_AXES:
        rows: dict[str, dict[str, Group]] = {}
        words: dict[str, None] = {}
        for contender in everybody:
            judged = [group for group in group_by(contender.samples, problems, axis) if group.passed is not None]
            words |= dict.fromkeys(group.name for group in judged)
            rows[contender.id] = {group.name: group for group in judged}
        maps[axis] = HeatMap(list(words), rows)
    return maps
