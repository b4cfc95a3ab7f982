"""Handing out work: each task to one worker at a time, and again to another one if the first is gone."""

import time

from pkb.store.reader import is_held, task_of
from pkb.store.records import Task
from pkb.store.runs import RunWriter
from pkb.store.worker import Worker

LEASE_S = 1800.0
"""Longer than any evaluation we know; who works longer renews. It matters only for workers on other machines."""
MAX_ATTEMPTS = 3


class TaskWriter(RunWriter):
    def claim(self, run_id: str, worker: Worker, *, lease_s: float = LEASE_S) -> Task | None:
        """The first task that waits, now this worker's own; None if there is none.

        Claiming again after None makes sense only once `reclaim_dead` has returned something.
        """
        now = time.time()
        # Looking and taking are one step because the transaction has the write lock from its first line.
        with self.transaction() as connection:
            row = connection.execute(
                "SELECT rowid, key FROM tasks WHERE run_id = ? AND state = 'waiting' ORDER BY rowid LIMIT 1", (run_id,)
            ).fetchone()
            if row is None:
                return None
            connection.execute(
                "UPDATE tasks SET state = 'claimed', claimed_by = ?, claimed_at = ?, lease_until = ?,"
                " attempts = attempts + 1 WHERE rowid = ?",
                (str(worker), now, now + lease_s, row["rowid"]),
            )
            return self.task(run_id, row["key"])

    def renew(self, task: Task, worker: Worker, *, lease_s: float = LEASE_S) -> bool:
        """More time. False: the task is no longer this worker's (its lease ran out and another one took it)."""
        return self._update(task, worker, "lease_until = ?", time.time() + lease_s)

    def release(self, task: Task, worker: Worker) -> bool:
        """Gives it back undone (Ctrl-C, a platform that went away): not counted as an attempt."""
        given_back = "claimed_by = NULL, claimed_at = NULL, lease_until = NULL, attempts = attempts - 1"
        return self._update(task, worker, f"state = 'waiting', {given_back}")

    def fail(self, task: Task, worker: Worker, *, error: str) -> bool:
        """It cannot be done: no verdict, no answer. `retry_failed` lets it wait again."""
        return self._update(task, worker, "state = 'failed', lease_until = NULL, error = ?", error)

    def finish(self, task: Task, worker: Worker) -> bool:
        """Done without an evaluation of its own: a model's task whose steps were recorded with `done=False`."""
        return self._update(task, worker, "state = 'done', lease_until = NULL, error = ''")

    def _update(self, task: Task, worker: Worker, change: str, *values: str | float) -> bool:
        """False: the task is not this worker's, and nothing was changed."""
        mine = "run_id = ? AND key = ? AND claimed_by = ? AND state = 'claimed'"
        with self.transaction() as connection:
            done = connection.execute(
                f"UPDATE tasks SET {change} WHERE {mine}", (*values, task.run_id, task.key, str(worker))
            )
            return done.rowcount == 1

    def reclaim_dead(self, run_id: str, *, max_attempts: int = MAX_ATTEMPTS) -> list[Task]:
        """Tasks whose worker is gone or whose lease is over, waiting again.

        One that has cost `max_attempts` workers their life is failed instead: it would go on killing them.
        """
        reclaimed = []
        with self.transaction() as connection:
            rows = connection.execute(
                "SELECT * FROM tasks WHERE run_id = ? AND state = 'claimed' ORDER BY rowid", (run_id,)
            ).fetchall()
            for task in (task_of(row) for row in rows):
                if is_held(task):
                    continue
                state = "failed" if task.attempts >= max_attempts else "waiting"
                error = f"its worker was gone {task.attempts} times" if state == "failed" else ""
                connection.execute(
                    "UPDATE tasks SET state = ?, lease_until = NULL, error = ? WHERE run_id = ? AND key = ?",
                    (state, error, run_id, task.key),
                )
                if state == "waiting":
                    reclaimed.append(self.task(run_id, task.key))
        return reclaimed

    def retry_failed(self, run_id: str) -> int:
        with self.transaction() as connection:
            return connection.execute(
                "UPDATE tasks SET state = 'waiting', attempts = 0, error = '' WHERE run_id = ? AND state = 'failed'",
                (run_id,),
            ).rowcount
