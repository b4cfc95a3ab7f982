"""What has come of the tasks of a stored run, and what they have cost. Every count of a run is made here: `pkb runs`,
`pkb runs show`, `pkb score`, `pkb run`, `pkb generate` and the report all ask `run_outcomes`."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from pkb.analysis.samples import Sample, total
from pkb.store import EvaluationRow, Reader, Run, Step, Task
from pkb.store.reader import is_held
from pkb.types.case import AUTO, Case
from pkb.types.json_value import Json

NO_ANSWER = "no_answer"
"""The model answered, and no candidate was in it: a failure of the model, counted in every share."""
NO_VERDICT = "no_verdict"
"""The task failed (a provider or the judge did not answer): nobody's failure, in no share, and tried again on demand."""
UNDER_WAY = "under_way"
WAITING = "waiting"
UNJUDGED = (NO_ANSWER, NO_VERDICT, UNDER_WAY, WAITING)


@dataclass(frozen=True)
class Spent:
    """What models have used. None where no step says it, which is not zero."""

    answers: int = 0
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None

    @property
    def tokens(self) -> int | None:
        return total((self.tokens_in, self.tokens_out))

    @staticmethod
    def of(steps: Iterable[Step]) -> "Spent":
        """All steps, also those that led to no verdict: a look at the problem and the last words are paid for too."""
        said = list(steps)
        return Spent(
            len(said), total(step.tokens_in for step in said), total(step.tokens_out for step in said),
            total(step.cost_usd for step in said),
        )  # fmt: skip

    @staticmethod
    def sum(parts: Iterable["Spent"]) -> "Spent":
        every = list(parts)
        return Spent(
            sum(part.answers for part in every), total(part.tokens_in for part in every),
            total(part.tokens_out for part in every), total(part.cost_usd for part in every),
        )  # fmt: skip

    def to_dict(self) -> dict[str, Json]:
        return asdict(self)


@dataclass(frozen=True)
class RunOutcome:
    task: Task
    case: Case
    """As judged. Without a verdict: as asked for, with what was left open settled as for the others of its collection."""
    steps: tuple[Step, ...]
    """What a model said, in order; empty where no model was asked."""
    judged: tuple[EvaluationRow, ...]
    """Verdicts in the order of their steps."""

    @property
    def last(self) -> EvaluationRow | None:
        """The verdict that counts: of an agent the last one, which is its best kernel's."""
        return self.judged[-1] if self.judged else None

    @property
    def is_try(self) -> bool:
        """Whether it is a sample of a score: something was judged, or a model is done and gave nothing to judge."""
        return bool(self.judged) or self.task.state == "done"

    @cached_property
    def word(self) -> str:
        """The verdict, or why there is none."""
        if self.last is not None:
            return self.last.verdict
        if self.task.state == "claimed":
            return UNDER_WAY if is_held(self.task) else WAITING
        return {"done": NO_ANSWER, "failed": NO_VERDICT}.get(self.task.state, WAITING)

    @property
    def reason(self) -> str:
        """The judge's words, or why there is no verdict."""
        if self.last is not None:
            return self.last.detail
        said = self.steps[-1].error if self.steps else ""
        held = f"claimed by {self.task.claimed_by}" if self.word == UNDER_WAY else ""
        return self.task.error or said or held

    @cached_property
    def spent(self) -> Spent:
        return Spent.of(self.steps)

    def sample(self, document: Mapping[str, Any] | None) -> Sample:
        """For scores; `document` is the last verdict, whole or as much of it as is wanted."""
        last = self.last
        return Sample(
            collection=self.task.collection,
            problem=self.task.problem_id,
            index=self.task.sample,
            evaluation=document,
            step=last.step if last is not None and len(self.judged) > 1 else None,
            cost_usd=self.spent.cost_usd,
            tokens=self.spent.tokens,
            tokens_in=self.spent.tokens_in,
            tokens_out=self.spent.tokens_out,
            origin=f"{self.task.run_id}/{self.task.key}",
        )

    def to_dict(self) -> dict[str, Json]:
        return {"key": self.task.key, "outcome": self.word, "reason": self.reason} | self.spent.to_dict()


@dataclass(frozen=True)
class RunCounts:
    tasks: int
    outcomes: Mapping[str, int]
    """Tasks by their word, verdicts first, the most frequent first; they add up to `tasks`."""
    ended: int
    """Tasks on which nobody will work unasked. An agent that was cut off has a verdict and is not among them."""
    spent: Spent

    @property
    def verdicts(self) -> dict[str, int]:
        return {word: count for word, count in self.outcomes.items() if word not in UNJUDGED}

    def to_dict(self) -> dict[str, Json]:
        return {"outcomes": dict(self.outcomes), "verdicts": self.verdicts, "spent": self.spent.to_dict()}


def run_outcomes(reader: Reader, run: Run) -> list[RunOutcome]:
    """Every task of the run, in its order."""
    judged: dict[str, list[EvaluationRow]] = {}
    for row in reader.evaluations([run.id]):
        judged.setdefault(row.task_key, []).append(row)
    said: dict[str, list[Step]] = {}
    for step in reader.steps(run.id):
        said.setdefault(step.task_key, []).append(step)
    found = []
    for task in reader.tasks(run.id):
        rows = tuple(sorted(judged.get(task.key, ()), key=lambda row: row.step))
        case = rows[-1].case if rows else task.case
        found.append(RunOutcome(task, case, tuple(said.get(task.key, ())), rows))
    return _settled(found)


def counts(outcomes: Sequence[RunOutcome]) -> RunCounts:
    words = Counter(outcome.word for outcome in outcomes)
    ordered = sorted(words, key=lambda word: (UNJUDGED.index(word) if word in UNJUDGED else -1, -words[word], word))
    return RunCounts(
        tasks=len(outcomes),
        outcomes={word: words[word] for word in ordered},
        ended=sum(outcome.task.state in ("done", "failed") for outcome in outcomes),
        spent=Spent.sum(outcome.spent for outcome in outcomes),
    )


def read_samples(reader: Reader, run: Run) -> tuple[list[Sample], RunCounts]:
    """The run's tries, for scores; and what was not tried yet, or could not be: in no figure, but not to be forgotten."""
    outcomes = run_outcomes(reader, run)
    samples = [
        outcome.sample(None if outcome.last is None else reader.document(outcome.last.document_sha))
        for outcome in outcomes
        if outcome.is_try
    ]
    return samples, counts([outcome for outcome in outcomes if not outcome.is_try])


def _settled(outcomes: Sequence[RunOutcome]) -> list[RunOutcome]:
    """A task without a verdict may leave its platform, size or dtype open. Where the others of its collection agree on one,
    that is what it was asked under: it belongs with them, not in a group of its own."""
    agreed: dict[tuple[str, str], set[str]] = {}
    for outcome in outcomes:
        if outcome.judged:
            for name in ("platform", "size", "dtype"):
                agreed.setdefault((outcome.task.collection, name), set()).add(getattr(outcome.case, name))
    settled = []
    for outcome in outcomes:
        case = outcome.case
        for name in ("platform", "size", "dtype"):
            words = agreed.get((outcome.task.collection, name), set())
            if getattr(case, name) == AUTO and len(words) == 1:
                case = replace(case, **{name: next(iter(words))})  # type: ignore[arg-type]  # all three are words
        settled.append(outcome if case is outcome.case else replace(outcome, case=case))
    return settled
