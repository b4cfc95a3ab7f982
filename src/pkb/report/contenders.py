"""Who is on the leaderboard: a collection of one run, taken apart where it would count one candidate twice."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from pkb.analysis.samples import Sample, judged_by_problem
from pkb.platforms.registry import traits
from pkb.report.tries import Try, file_safe
from pkb.store import Run
from pkb.types.plan import PUBLISHED

_K = TypeVar("_K")
AXES = ("backend", "size", "ranks", "dtype", "plan")


@dataclass(frozen=True)
class Contender:
    """A row of the leaderboard."""

    name: str
    run: Run
    tries: tuple[Try, ...]

    @cached_property
    def id(self) -> str:
        digest = hashlib.sha256(f"{self.run.id}\0{self.name}".encode()).hexdigest()[:6]
        return f"{file_safe(self.name, 40).lower()}-{digest}"

    @cached_property
    def samples(self) -> list[Sample]:
        return [replace(each.sample, collection=self.name) for each in self.tries]

    @cached_property
    def firsts(self) -> list[Sample]:
        """The first judged sample of every problem: a single shot."""
        return [tries[0] for tries in judged_by_problem(self.samples).values()]

    @cached_property
    def most_tries(self) -> int:
        return max(map(len, judged_by_problem(self.samples).values()), default=0)

    @cached_property
    def judged_tries(self) -> int:
        return sum(sample.is_judged for sample in self.samples)

    @cached_property
    def correct_tries(self) -> int:
        return sum(sample.is_correct for sample in self.samples)

    @cached_property
    def is_agent(self) -> bool:
        return any(each.is_loop for each in self.tries)

    @cached_property
    def is_as_published(self) -> bool:
        """Judged by the published protocol: it stands beside the others, and has no place among them."""
        return all(each.case.plan == PUBLISHED for each in self.tries)

    @property
    def kind(self) -> str:
        if self.is_agent:
            return "agent"
        return "model" if any(each.steps for each in self.tries) else "files"

    @property
    def platforms(self) -> list[str]:
        return self._said("platform")

    @property
    def notes(self) -> list[str]:
        """What has to stand beside every figure that was taken there."""
        return [note for name in self.platforms if (note := traits(name).note)]

    @property
    def conditions(self) -> dict[str, list[str]]:
        """What its verdicts were taken on, most frequent first. Several words on one line mean mixed conditions."""
        return {name: self._said(name) for name in ("platform", "hardware", "ranks", "size", "dtype", "plan")}

    def _said(self, name: str) -> list[str]:
        said = Counter(each.place(name) for each in self.tries if each.last)
        return [word for word, _ in said.most_common()]


Entrant = tuple[Contender, Try]


def contenders(tries: Sequence[Try]) -> list[Contender]:
    """One for each collection of each run and platform; taken apart further along an axis only where the same try at the
    same problem was judged under several of its values (one candidate at two sizes is not two candidates)."""
    groups: list[tuple[str, list[str], list[Try]]] = []
    for (_, collection, platform), members in _grouped(tries, _place_of):
        for words, part in _apart(members, AXES):
            groups.append((collection, [platform, *words], part))
    runs_of = Counter(name for name, _ in {(name, part[0].run.id) for name, _, part in groups})
    platforms_of = Counter(name for name, _ in {(name, words[0]) for name, words, _ in groups})
    named = []
    for name, (platform, *words), part in groups:
        run = part[0].run
        extra = [platform] if platforms_of[name] > 1 else []
        extra += [run.name or run.id] if runs_of[name] > 1 else []
        named.append((" · ".join([name, *extra, *words]), run, part))
    repeated = Counter(name for name, _, _ in named)
    return [
        Contender(f"{name} · {run.id}" if repeated[name] > 1 else name, run, tuple(part)) for name, run, part in named
    ]


def _place_of(each: Try) -> tuple[str, str, str]:
    return each.run.id, each.task.collection, each.place("platform")


def _apart(tries: list[Try], axes: Sequence[str]) -> list[tuple[list[str], list[Try]]]:
    if not axes:
        return [([], tries)]
    axis, rest = axes[0], axes[1:]

    def value(each: Try) -> str:
        return each.task.backend if axis == "backend" else each.task.case.plan if axis == "plan" else each.place(axis)

    places = {(each.task.problem_id, each.task.sample, value(each)) for each in tries}
    if len({place[:2] for place in places}) == len(places):
        return _apart(tries, rest)
    return [
        ([_word(axis, name), *words], part)
        for name, members in _grouped(tries, value)
        for words, part in _apart(members, rest)
    ]


def _word(axis: str, value: str) -> str:
    return f"{value} ranks" if axis == "ranks" else value


def _grouped(tries: Iterable[Try], key: Callable[[Try], _K]) -> list[tuple[_K, list[Try]]]:
    groups: dict[_K, list[Try]] = {}
    for each in tries:
        groups.setdefault(key(each), []).append(each)
    return list(groups.items())
