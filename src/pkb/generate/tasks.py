"""inspect-ai tasks: problems as the dataset, a solver, and the judge's verdict as the score.

`inspect eval pkb/oneshot -T problems=1-8 --model ...` runs one by itself, with inspect's log only; `pkb generate` and
`pkb agent` run the same with a run of the store behind it.
"""

import atexit
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from inspect_ai import Task, task
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer
from inspect_ai.solver import TaskState

from pkb.generate.agent import agent_solver
from pkb.generate.feedback import feedback
from pkb.generate.journal import Journal
from pkb.generate.judging import Judge, JudgeFailed, Progress
from pkb.generate.oneshot import STEP, one_shot_solver
from pkb.generate.settings import Settings
from pkb.generate.work import CODE, PROBLEM, VERDICT, Item, Work, items_of
from pkb.platforms.registry import resolve
from pkb.types.case import AUTO, Case
from pkb.types.document import VerdictDocument
from pkb.types.document_versions import read_evaluation
from pkb.types.errors import UserError

Kind = Literal["generate", "agent"]
ProblemKeys = str | int | Sequence[str | int]


@task
def oneshot(
    problems: ProblemKeys = "1",
    backend: str = "cuda",
    platform: str = "auto",
    ranks: int = 4,
    size: str | None = None,
    dtype: str | None = None,
    plan: str = "standard",
    hardware: str = "h100x8",
    shots: int | None = None,
    samples: int = 1,
) -> Task:
    """One answer for each problem (`1-8,13`, names, `all`) and sample."""
    settings = Settings(
        model="inspect", backend=backend, case=Case("", platform, ranks, size or AUTO, dtype or AUTO, plan),
        hardware=hardware, shots=shots,
    )  # fmt: skip
    return _by_itself("generate", settings, problems=problems, samples=samples)


@task
def agent(
    problems: ProblemKeys = "1",
    backend: str = "cuda",
    platform: str = "auto",
    ranks: int = 4,
    size: str | None = None,
    dtype: str | None = None,
    plan: str = "standard",
    hardware: str = "h100x8",
    shots: int | None = None,
    samples: int = 1,
    steps: int = 20,
    budget_tokens: int | None = None,
    budget_seconds: float | None = None,
) -> Task:
    """An agent at each problem and sample."""
    settings = Settings(
        model="inspect", backend=backend, case=Case("", platform, ranks, size or AUTO, dtype or AUTO, plan),
        hardware=hardware, shots=shots, steps=steps, budget_tokens=budget_tokens, budget_seconds=budget_seconds,
    )  # fmt: skip
    return _by_itself("agent", settings, problems=problems, samples=samples)


def _by_itself(kind: Kind, settings: Settings, *, problems: ProblemKeys, samples: int) -> Task:
    try:
        settings = replace(settings, case=replace(settings.case, platform=resolve(settings.case.platform)))
        items = items_of(settings, settings.tasks(settings.registry().select(keys_text(problems)), samples=samples))
    except UserError as error:
        raise PrerequisiteError(f"error: {error}") from error  # which inspect shows as a line, not as a traceback
    judge = Judge(_to_stderr)
    atexit.register(judge.close)
    return build(kind, settings, items, journal=Journal(), judge=judge, progress=_to_stderr)


def keys_text(problems: ProblemKeys) -> str:
    """inspect's command line makes a list of `-T problems=1,13`, and a number of `-T problems=13`."""
    return ",".join(map(str, problems)) if isinstance(problems, list | tuple) else str(problems)


def build(
    kind: Kind, settings: Settings, items: list[Item], *, journal: Journal, judge: Judge, progress: Progress
) -> Task:
    work = Work(settings, items, journal=journal, judge=judge, progress=progress)
    dataset = MemoryDataset(
        [
            Sample(
                id=item.name,
                input=[ChatMessageSystem(content=item.prompt.system), ChatMessageUser(content=item.prompt.user)],
                metadata={"task": item.task.key, "prompt_sha256": item.prompt.sha256},
            )
            for item in items
        ]
    )
    solve = agent_solver(work) if kind == "agent" else one_shot_solver(work)
    name = "agent" if kind == "agent" else "oneshot"
    return Task(
        dataset=dataset, solver=solve, scorer=verdict_scorer(work), name=name, metadata={"backend": settings.backend}
    )


def verdict_scorer(work: Work) -> Scorer:
    """`correct` and `faster`, 0 or 1; `faster` is NaN, which inspect leaves out of its means, where a correct candidate was not
    timed. An agent's verdict is there already; a single answer is judged here."""

    @scorer(name="verdict", metrics={"correct": [mean()], "faster": [mean()]})
    def verdict() -> Scorer:
        async def score(state: TaskState, target: Target) -> Score:
            item, code = work.item(state), state.store.get(CODE)
            judged = state.store.get(VERDICT)
            document = None if judged is None else VerdictDocument(judged)
            if document is None and code is not None:
                try:
                    document = await work.judge(item, code)
                except JudgeFailed as error:
                    work.journal.failed(item.task, str(error))
                    raise
                work.journal.judged(item.task, STEP, document, done=True)
            return _score(document, code, why=str(state.store.get(PROBLEM) or work.journal.fatal or "no answer"))

        return score

    return verdict()


def _score(document: VerdictDocument | None, code: str | None, *, why: str) -> Score:
    if document is None:
        return Score(value={"correct": 0, "faster": 0}, explanation=why)
    faster = float(document.speedup is not None and document.speedup.decision == "faster")
    if document.is_correct and document.speedup is None:
        faster = math.nan
    return Score(
        value={"correct": int(document.is_correct), "faster": faster},
        answer=code,
        explanation=feedback(read_evaluation(document.fields)),
        metadata={"verdict": document.verdict, "evaluation": document.without_samples().fields},  # the store has all
    )


def _to_stderr(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
