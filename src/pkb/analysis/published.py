"""The results published for the benchmark that this one descends from, as a built-in collection to compare with.

Numbers as published (`published.toml`), including those that contradict each other: `notes` says which. They were taken on
NVLinked GPUs with another judge (one global tolerance, public inputs, no race stage), so a difference to a score of ours is a
difference of models and of judges.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from pkb.analysis.modes import FailureMode


class Note(NamedTuple):
    about: str
    text: str


class Solved(NamedTuple):
    """Problems solved, and solved faster than the reference, by the first and by the best of three samples."""

    pass_at_1: int
    pass_at_3: int
    fast_at_1: int
    fast_at_3: int


@dataclass(frozen=True)
class Model:
    key: str
    name: str
    solved: Solved
    modes: Mapping[FailureMode, int]
    """Single shot, of all problems."""
    curve: Mapping[float, float]
    """fast_p by p, read off the plot."""


@dataclass(frozen=True)
class Category:
    name: str
    parallelism: str
    """The word of our taxonomy."""
    problems: int
    results: Mapping[str, Solved]
    """By the key of a model."""


@dataclass(frozen=True)
class Agent:
    """An agent loop instead of a single shot."""

    model: str
    scaffold: str
    single_shot_correct: int
    correct: int
    faster: int
    plateau_steps: int
    note: str


@dataclass(frozen=True)
class Published:
    benchmark: str
    problems: int
    models: Mapping[str, Model]
    categories: tuple[Category, ...]
    agent: Agent
    sources: Mapping[str, int]
    """Problems by where their code is from."""
    mechanisms: tuple[Mapping[str, Any], ...]
    """How the files of one model and backend move data, as shares of its files. Counted, not published; of `memcpy` the
    lowest and highest of two ways of counting."""
    readings: Mapping[str, str]
    """What each published figure means, in words."""
    notes: tuple[Note, ...]


@cache
def published() -> Published:
    """The published results, read from the package's own file."""
    said = tomllib.loads((files("pkb.analysis") / "published.toml").read_text(encoding="utf-8"))
    return Published(
        benchmark=said["benchmark"],
        problems=said["problems"],
        models={entry["key"]: _model(entry, said["fast_p"]) for entry in said["models"]},
        categories=tuple(
            Category(
                name=entry["name"],
                parallelism=entry["parallelism"],
                problems=entry["problems"],
                results={key: Solved(*row) for key, row in entry["results"].items()},
            )
            for entry in said["categories"]
        ),
        agent=Agent(**said["agent"]),
        sources=said["sources"],
        mechanisms=tuple(said["mechanisms"]),
        readings=said["readings"],
        notes=tuple(Note(**entry) for entry in said["notes"]),
    )


def _model(entry: Mapping[str, Any], ps: list[float]) -> Model:
    return Model(
        key=entry["key"],
        name=entry["name"],
        solved=Solved(entry["pass_at_1"], entry["pass_at_3"], entry["fast_at_1"], entry["fast_at_3"]),
        modes={FailureMode(name): count for name, count in entry["modes"].items()},
        curve=dict(zip(ps, entry["curve"], strict=True)),
    )
