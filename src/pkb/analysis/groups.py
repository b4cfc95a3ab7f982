"""Samples by the axes of the taxonomy, so that a score says where a collection is strong and where weak."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pkb.analysis.samples import Sample
from pkb.analysis.score import Share, fast_share, share_at
from pkb.problems.base import Problem
from pkb.types.taxonomy import LAYER, PARALLELISM, STAGE

AXES = ("parallelism", "layer", "stage", "pattern", "system")
UNKNOWN = "unknown problem"


def words_of(problem: Problem, axis: str) -> tuple[str, ...]:
    """The groups that a problem is in, the main one first."""
    value = getattr(problem.taxonomy, axis)
    return (value,) if isinstance(value, str) else tuple(value) or ("none",)


@dataclass(frozen=True)
class Group:
    axis: str
    name: str
    problems: int
    """Problems of this group in the collection; `passed.problems` of them were judged."""
    samples: int
    passed: Share | None
    """pass@1."""
    custom: Share | None
    fast: Share | None
    """fast_1@1, proven; None where nothing correct was timed."""


def group_by(samples: Sequence[Sample], problems: Mapping[int, Problem], axis: str, *, seed: int = 0) -> list[Group]:
    """Scores by group. A problem is counted once, under the first word of its axis, so that counts add up."""
    if axis not in AXES:
        raise ValueError(f"{axis!r} is no axis; one of {AXES}")
    members: dict[str, list[Sample]] = {}
    for sample in samples:
        problem = problems.get(sample.problem)
        members.setdefault(words_of(problem, axis)[0] if problem else UNKNOWN, []).append(sample)
    order = {"parallelism": PARALLELISM, "layer": LAYER, "stage": STAGE}.get(axis, ())
    names = sorted(
        members, key=lambda name: (name == UNKNOWN, order.index(name) if name in order else len(order), name)
    )
    return [
        Group(
            axis=axis,
            name=name,
            problems=len({sample.problem for sample in members[name]}),
            samples=len(members[name]),
            passed=share_at(members[name], lambda sample: sample.is_correct, k=1, seed=seed),
            custom=share_at(members[name], lambda sample: sample.is_custom, k=1, seed=seed),
            fast=fast_share(members[name], 1.0, seed=seed),
        )
        for name in names
    ]
