"""Where the steps of a run are written down as they happen: in the store, or nowhere (`inspect eval`, which has its own log).

An answer is recorded the moment it is there, its verdict the moment that is; after kill -9 both are found again, and a
resumed run neither asks nor judges twice.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Self

from pkb.generate.models import ModelReply
from pkb.generate.settings import filename
from pkb.store import CandidateFile, Step, Store, Task, TaskSpec, Worker
from pkb.store.secret_check import remove_secrets
from pkb.types.document import VerdictDocument
from pkb.types.errors import UserError

_RENEW_S = 300.0


class Journal:
    """Writes nothing down and begins anew each time: for `inspect eval`."""

    fatal: UserError | None = None
    """What stops the whole run: a refused key, a model that is not there."""

    def answered(
        self, task: TaskSpec, step: int, reply: ModelReply, *, transcript: Any, code: str | None, problem: str
    ) -> None:
        """What the model said, with the candidate in it or why there is none."""

    def judged(
        self, task: TaskSpec, step: int, document: VerdictDocument, *, code: str | None = None, done: bool
    ) -> None:
        """`code` where the candidate is not the one of this step's answer."""

    def finished(self, task: TaskSpec) -> None: ...

    def failed(self, task: TaskSpec, error: str) -> None: ...

    def steps(self, task: TaskSpec) -> list[Step]:
        return []

    def transcript(self, step: Step) -> Any:
        raise LookupError

    def code(self, step: Step) -> str | None:
        raise LookupError

    def documents(self, task: TaskSpec) -> Mapping[int, VerdictDocument]:
        """Verdicts by step."""
        return {}


class StoreJournal(Journal):
    """The claimed tasks of one run. As a context it keeps the claims alive, and gives back what was not finished."""

    def __init__(self, store: Store, run_id: str) -> None:
        self.store, self.run_id = store, run_id
        self.worker = Worker.here()
        self.claimed: dict[str, Task] = {}
        self.ended: Callable[[], None] = lambda: None
        """Called when a task has its outcome."""
        self._over = threading.Event()

    def claim_all(self) -> list[Task]:
        """Everything that waits; what dead workers held and what had failed waits again first."""
        self.store.reclaim_dead(self.run_id)
        self.store.retry_failed(self.run_id)
        while task := self.store.claim(self.run_id, self.worker):
            self.claimed[task.key] = task
        return list(self.claimed.values())

    def __enter__(self) -> Self:
        threading.Thread(target=self._keep_claims, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        for task in list(self.claimed.values()):
            self.store.release(task, self.worker)

    def answered(
        self, task: TaskSpec, step: int, reply: ModelReply, *, transcript: Any, code: str | None, problem: str
    ) -> None:
        self.store.record_step(
            self.run_id, task.key, step=step, transcript=transcript,
            candidate=code_file(task, code, origin=f"{task.collection}, step {step}") if code is not None else None,
            tokens_in=reply.tokens_in, tokens_out=reply.tokens_out, cost_usd=reply.cost_usd,
            seconds=round(reply.seconds, 3), stop_reason=reply.stop_reason, error=problem,
        )  # fmt: skip

    def judged(
        self, task: TaskSpec, step: int, document: VerdictDocument, *, code: str | None = None, done: bool
    ) -> None:
        file = code_file(task, code, origin=f"{task.collection}, judged again") if code is not None else None
        self.store.record_evaluation(self.run_id, task.key, document, step=step, candidate=file, done=done)
        if done and self.claimed.pop(task.key, None) is not None:
            self.ended()

    def finished(self, task: TaskSpec) -> None:
        self.store.finish(self.claimed.pop(task.key), self.worker)
        self.ended()

    def failed(self, task: TaskSpec, error: str) -> None:
        self.store.fail(self.claimed.pop(task.key), self.worker, error=str(remove_secrets(error)))
        self.ended()

    def steps(self, task: TaskSpec) -> list[Step]:
        return self.store.steps(self.run_id, task.key)

    def transcript(self, step: Step) -> Any:
        return self.store.transcript(step.transcript_sha)

    def code(self, step: Step) -> str | None:
        return None if step.candidate_sha is None else self.store.source(step.candidate_sha)

    def documents(self, task: TaskSpec) -> Mapping[int, VerdictDocument]:
        rows = [row for row in self.store.evaluations([self.run_id]) if row.task_key == task.key]
        return {row.step: VerdictDocument(self.store.document(row.document_sha)) for row in rows}

    def _keep_claims(self) -> None:
        while not self._over.wait(_RENEW_S):
            for task in list(self.claimed.values()):
                self.store.renew(task, self.worker)


def code_file(task: TaskSpec, code: str, *, origin: str) -> CandidateFile:
    return CandidateFile(source=code.encode("utf-8", "replace"), filename=filename(task), origin=origin)
