"""The whole store, for those who write: `cli`, `generate` and `cluster`. Everybody else opens a `Reader`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pkb.store.records import CandidateFile, dumps
from pkb.store.runs import insert_candidate, now_utc
from pkb.store.secret_check import remove_secrets
from pkb.store.tasks import TaskWriter
from pkb.types.document import VerdictDocument
from pkb.types.timing import tells_speed
from pkb.types.verdict import Evaluation, Verdict

_MESSAGE_LENGTH = 500


class Store(TaskWriter):
    writable = True

    def __init__(self, root: Path) -> None:
        super().__init__(root, create=True)

    def record_step(
        self,
        run_id: str,
        task_key: str,
        *,
        step: int,
        transcript: Any,
        candidate: CandidateFile | None = None,
        tokens_in: int | None = None,
        tokens_out: int | None = None,
        cost_usd: float | None = None,
        seconds: float | None = None,
        stop_reason: str = "",
        error: str = "",
    ) -> bool:
        """Keeps what a model said (any JSON) and the candidate in it. False: this step was there already, unchanged.

        Call it as soon as the answer is there: it was paid for, and a resumed run must not ask again.
        """
        spoken = dumps(remove_secrets(transcript)).encode()
        blobs = {self.objects.put(spoken): spoken}
        (transcript_sha,) = blobs
        candidate_sha = self._put_candidate(candidate, blobs)
        task = self.task(run_id, task_key)
        with self.transaction() as connection:
            self._keep(blobs)
            added = connection.execute(
                "INSERT INTO steps (run_id, task_key, step, transcript_sha, candidate_sha, tokens_in,"
                " tokens_out, cost_usd, seconds, stop_reason, error, created_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id, task_key, step) DO NOTHING",
                (run_id, task_key, step, transcript_sha, candidate_sha, tokens_in, tokens_out, cost_usd, seconds,
                 stop_reason, str(remove_secrets(error)), now_utc()),
            ).rowcount  # fmt: skip
            if added and candidate and candidate_sha:
                insert_candidate(connection, run_id, sha=candidate_sha, file=candidate, task=task)
        return added == 1

    def record_evaluation(
        self,
        run_id: str,
        task_key: str,
        evaluation: Evaluation | VerdictDocument,
        *,
        step: int = 0,
        candidate: CandidateFile | None = None,
        done: bool = True,
    ) -> bool:
        """Keeps a verdict, exactly once: False if this task and step had one already, which then stays as it is.

        The document is on disk before the row that names it, and the row and the task's `done` are one transaction: after
        a kill there are both or neither. `done=False` leaves the task open, for a step that is not the last.
        """
        document = evaluation.to_dict() if isinstance(evaluation, Evaluation) else dict(evaluation.fields)
        task = self.task(run_id, task_key)
        if int(document["problem"]["id"]) != task.problem_id:
            raise ValueError(f"a verdict about problem {document['problem']['id']} for the task {task_key}")
        data = dumps(document).encode()
        blobs = {self.objects.put(data): data}
        (document_sha,) = blobs
        candidate_sha = self._put_candidate(candidate, blobs)
        with self.transaction() as connection:
            self._keep(blobs)
            if candidate_sha is None:
                row = connection.execute(
                    "SELECT candidate_sha FROM steps WHERE run_id = ? AND task_key = ? AND step = ?",
                    (run_id, task_key, step),
                ).fetchone()
                candidate_sha = row[0] if row and row[0] else task.candidate_sha
            judged = document["candidate"].get("sha256")
            if judged and candidate_sha and judged != candidate_sha:
                raise ValueError(f"the verdict is about the file {judged[:12]}, the task's is {candidate_sha[:12]}")
            columns = _columns(document) | {
                "run_id": run_id, "task_key": task_key, "step": step, "document_sha": document_sha,
                "candidate_sha": candidate_sha, "created_at": now_utc(),
            }  # fmt: skip
            added = connection.execute(
                f"INSERT INTO evaluations ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
                " ON CONFLICT (run_id, task_key, step) DO NOTHING",
                tuple(columns.values()),
            ).rowcount
            if added and candidate and candidate_sha:
                insert_candidate(connection, run_id, sha=candidate_sha, file=candidate, task=task)
            if done:
                connection.execute(
                    "UPDATE tasks SET state = 'done', lease_until = NULL, error = '' WHERE run_id = ? AND key = ?",
                    (run_id, task_key),
                )
        return added == 1

    def _put_candidate(self, candidate: CandidateFile | None, blobs: dict[str, bytes]) -> str | None:
        if candidate is None:
            return None
        sha = self.objects.put(candidate.source)
        blobs[sha] = candidate.source
        return sha


def _columns(document: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a verdict that tables and statistics ask for. Times only where they are believed and mean something."""
    believed = document["verdict"] == Verdict.CORRECT and tells_speed(document["platform"])
    timing = (document.get("timing") if believed else None) or {}
    failure = document.get("failure") or {}
    return {
        "verdict": str(document["verdict"]),
        "stage": str(document["stage"]),
        "detail": document["detail"],
        **{
            name: timing.get(name)
            for name in (
                "decision", "speedup", "speedup_low", "speedup_high", "reference_us", "candidate_us", "floor_us",
            )
        },
        "communication": str(document.get("communication") or "unknown"),
        "paths": dumps(list(document.get("paths") or ())),
        "race_kind": document.get("race_kind"),
        "failure_kind": failure.get("name") or failure.get("kind"),
        "failure_message": (failure.get("message") or "")[:_MESSAGE_LENGTH] or None,
        **{name: document[name] for name in ("platform", "hardware", "ranks", "size", "dtype", "plan")},
    }  # fmt: skip
