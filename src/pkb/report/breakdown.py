"""How tries end and how their data moves, by contender: what the stacked bars show."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from pkb.analysis.modes import FailureMode
from pkb.analysis.published import Published
from pkb.report.contenders import Contender
from pkb.report.words import COMMUNICATION_WORDS, PATH_WORDS


@dataclass(frozen=True)
class ModeRow:
    id: str
    name: str
    published: bool
    samples: int
    counts: dict[str, int]
    """Samples by failure mode."""


@dataclass(frozen=True)
class FailureModes:
    modes: list[tuple[str, str]]
    """Each with its words, as the bars are stacked."""
    rows: list[ModeRow]

    @property
    def seen(self) -> list[tuple[str, str]]:
        """Those that any try ended in: a table of empty columns fits no window."""
        return [(mode, words) for mode, words in self.modes if any(row.counts.get(mode) for row in self.rows)]


@dataclass(frozen=True)
class PathRow:
    id: str
    name: str
    samples: int
    communication: dict[str, int]
    correct: dict[str, int]
    """Of the correct ones, by communication."""
    paths: dict[str, int]


@dataclass(frozen=True)
class PathsUsed:
    communication: tuple[str, ...]
    paths: list[str]
    rows: list[PathRow]


@dataclass(frozen=True)
class AgentProgress:
    id: str
    name: str
    tries: int
    conditions: dict[str, list[str]]
    correct: list[float]
    """By step, this and the next two: up to and with it."""
    faster: list[float]
    cost: list[float] | None
    plateau: int | None
    steps: int


def failure_modes(everybody: Sequence[Contender], published: Published | None) -> FailureModes:
    """Samples by failure mode. Published models have one sample a problem and only the seven published modes."""
    rows = [
        ModeRow(
            id=contender.id,
            name=contender.name,
            published=False,
            samples=len(contender.samples),
            counts=dict(Counter(sample.mode.value for sample in contender.samples)),
        )
        for contender in everybody
    ]
    if published:
        rows += [
            ModeRow(
                id=f"published-{model.key}",
                name=model.name,
                published=True,
                samples=sum(model.modes.values()),
                counts={mode.value: count for mode, count in model.modes.items() if count},
            )
            for model in published.models.values()
        ]
    return FailureModes([(mode.value, mode.words) for mode in ORDER], rows)


ORDER = (
    FailureMode.CORRECT, FailureMode.REUSED_OUTPUT, FailureMode.MISMATCH, FailureMode.RACE, FailureMode.DEADLOCK,
    FailureMode.COMPILE, FailureMode.SHAPE, FailureMode.NAME, FailureMode.RUNTIME, FailureMode.REJECTED,
    FailureMode.TORCH_VERSION, FailureMode.NO_ANSWER, FailureMode.UNSUPPORTED, FailureMode.HARNESS_ERROR,
)  # fmt: skip
"""As the bars are stacked: good first, nobody's fault last."""


def paths_used(everybody: Sequence[Contender]) -> PathsUsed:
    """What moved the data, observed while it ran, and by which ways the source seems to do it. A sample may use several."""
    rows = []
    names: Counter[str] = Counter()
    for contender in everybody:
        judged = [each.last for each in contender.tries if each.last]
        ways = Counter(PATH_WORDS.get(path, path) for row in judged for path in row.paths if path != "none")
        names.update(ways)
        rows.append(
            PathRow(
                id=contender.id,
                name=contender.name,
                samples=len(judged),
                communication=dict(Counter(row.communication for row in judged)),
                correct=dict(Counter(row.communication for row in judged if row.verdict == "correct")),
                paths=dict(ways),
            )
        )
    return PathsUsed(tuple(COMMUNICATION_WORDS), [name for name, _ in names.most_common()], rows)


def progress(everybody: Sequence[Contender]) -> list[AgentProgress]:
    """Of agents: after n steps, how many of their tries have had a correct kernel, and a proven faster one.

    The plateau is the step after which neither number rises any more.
    """
    return [_progress(contender) for contender in everybody if contender.is_agent]


def _progress(contender: Contender) -> AgentProgress:
    tries = contender.tries
    length = max((row.step for each in tries for row in each.judged), default=0) + 1
    correct_at, faster_at = [0] * length, [0] * length
    cost_at = [0.0] * length
    for each in tries:
        right = [row.step for row in each.judged if row.verdict == "correct"]
        fast = [row.step for row in each.judged if row.verdict == "correct" and row.decision == "faster"]
        if right:
            correct_at[right[0]] += 1
        if fast:
            faster_at[fast[0]] += 1
        for step in each.steps:
            cost_at[min(step.step, length - 1)] += step.cost_usd or 0.0
    rises = [step for step in range(length) if correct_at[step] or faster_at[step]]
    return AgentProgress(
        id=contender.id,
        name=contender.name,
        tries=len(tries),
        conditions=contender.conditions,
        correct=_running(correct_at),
        faster=_running(faster_at),
        cost=_running(cost_at) if any(cost_at) else None,
        plateau=rises[-1] + 1 if rises else None,
        steps=length,
    )


def _running(values: Sequence[float]) -> list[float]:
    return [round(total, 6) for total in accumulate(values)]
