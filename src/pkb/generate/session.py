"""Works on a run of the store: asks for what is missing, has it judged, and leaves the run in a state that can be resumed."""

import time
from pathlib import Path
from typing import Any

from pkb.analysis.outcomes import RunOutcome, run_outcomes
from pkb.generate.journal import StoreJournal
from pkb.generate.judging import Judge, Progress
from pkb.generate.models import need_inspect, open_model
from pkb.generate.settings import Settings
from pkb.store import LOGS, Run, Store
from pkb.types.errors import UserError
from pkb.types.processes import interrupt_later

AHEAD = 32
"""Answers that may wait for the judge while more are asked for."""


def open_run(store: Store, reference: str, *, kind: str) -> tuple[Run, Settings]:
    """A run to resume, and how it was begun."""
    run = store.run(reference)
    if run.kind != kind:
        raise UserError(f"run {run.id} is of kind {run.kind}", f"`pkb {run.kind} --resume` may know it")
    return run, Settings.from_dict(run.config)


def work_on(
    store: Store, run: Run, settings: Settings, *, evaluate: bool = True, progress: Progress = lambda what: None
) -> list[RunOutcome]:
    """Everything that is not done yet. Ctrl-C leaves the run `interrupted`, with each task done or waiting."""
    need_inspect()
    from pkb.generate.tasks import Kind, build
    from pkb.generate.work import items_of

    model = open_model(
        settings.model, temperature=settings.temperature, max_tokens=settings.max_tokens, retries=settings.retries
    )
    journal, judge = StoreJournal(store, run.id), Judge(progress)
    claimed = journal.claim_all()
    journal.ended = _Countdown(len(store.tasks(run.id)), len(claimed), progress).ended
    store.set_run_state(run.id, "open")
    ended = False
    try:
        with journal:
            items = items_of(settings, claimed)
            if items:
                kind: Kind = "agent" if run.kind == "agent" else "generate"
                task = build(kind, settings, items, journal=journal, judge=judge, progress=progress)
                _evaluate(
                    task, model, journal=journal, evaluate=evaluate, settings=settings, logs=store.root / LOGS / run.id
                )
            if journal.fatal is not None:
                raise journal.fatal
            ended = True
    finally:
        with interrupt_later():
            judge.close()
            left = store.tasks(run.id, state="waiting") + store.tasks(run.id, state="claimed")
            if not left:
                store.set_run_state(run.id, "complete")
            elif not ended:
                store.set_run_state(run.id, "interrupted")
    return run_outcomes(store, run)


class _Countdown:
    """Says how many tasks have their outcome, and how long the others will take if they are like those before."""

    def __init__(self, total: int, to_do: int, progress: Progress) -> None:
        self.total, self.left, self.to_do, self.progress = total, to_do, to_do, progress
        self.began = time.monotonic()

    def ended(self) -> None:
        self.left -= 1
        done_here = self.to_do - self.left
        text = f"{self.total - self.left} of {self.total} tasks done"
        if self.left:
            text += f", about {(time.monotonic() - self.began) / done_here * self.left / 60:.1f} min left"
        self.progress(text)


def _evaluate(task: Any, model: Any, *, journal: StoreJournal, evaluate: bool, settings: Settings, logs: Path) -> None:
    """inspect's evaluation. A task that it ended with an error of ours is failed, with that error."""
    from inspect_ai import eval as inspect_eval

    logs_of_tasks = inspect_eval(
        task, model=model, log_dir=str(logs), display="none", log_level="warning", fail_on_error=False, score=evaluate,
        # A sample holds its place while it waits for the judge, which takes one at a time: connections limit the questions.
        max_samples=settings.parallel + AHEAD, max_connections=settings.parallel, ctl_server=False,
    )  # fmt: skip
    # inspect takes Ctrl-C for itself: what it interrupted has the status, or no log at all.
    if not logs_of_tasks or logs_of_tasks[0].status == "cancelled":
        raise KeyboardInterrupt
    log = logs_of_tasks[0]
    by_key = {task.key: task for task in journal.claimed.values()}
    for sample in log.samples or ():
        broken = by_key.get(str((sample.metadata or {}).get("task")))
        if sample.error is not None and broken is not None:
            journal.failed(broken, sample.error.message)
    if log.status == "error" and log.error is not None:
        raise RuntimeError(f"inspect ended with an error: {log.error.message}")
