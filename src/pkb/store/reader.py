"""Reading: what analysis, reports and tables use. A Reader cannot write."""

import difflib
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

from pkb.store.database import Database
from pkb.store.records import Candidate, EvaluationRow, Run, RunSummary, Step, Task
from pkb.store.worker import Worker
from pkb.types.case import Case
from pkb.types.document_versions import current
from pkb.types.errors import UserError

_PAGE = 500
_EVALUATIONS = """
    SELECT e.rowid AS position, e.*, t.collection, t.problem, t.problem_id, t.backend, t.sample,
           s.tokens_in, s.tokens_out, s.cost_usd, s.seconds AS model_seconds
    FROM evaluations e JOIN tasks t ON t.run_id = e.run_id AND t.key = e.task_key
    LEFT JOIN steps s ON s.run_id = e.run_id AND s.task_key = e.task_key AND s.step = e.step
    WHERE e.run_id = ? AND e.rowid > ? ORDER BY e.rowid LIMIT ?"""


class Reader(Database):
    def runs(self) -> list[Run]:
        """Newest first."""
        rows = self.connection.execute("SELECT * FROM runs ORDER BY created_at DESC, rowid DESC").fetchall()
        return [_run(row) for row in rows]

    def run(self, reference: str) -> Run:
        """A run by its id, a prefix of it that no other has, its name, or `latest`."""
        runs = self.runs()
        if reference == "latest" and runs:
            return runs[0]
        for found in (
            [run for run in runs if run.id == reference],
            [run for run in runs if reference and run.id.startswith(reference)],
            [run for run in runs if reference and run.name == reference],
        ):
            if len(found) == 1:
                return found[0]
            if found:
                some = ", ".join(run.id for run in found[:4])
                raise UserError(f"{reference!r} could mean {len(found)} runs: {some}", "give more of the id")
        near = difflib.get_close_matches(reference, [name for run in runs for name in (run.name, run.id) if name])
        meant = f"did you mean {' or '.join(dict.fromkeys(near))}? " if near else ""
        raise UserError(f"no run is called {reference!r} in {self.root}", f"{meant}`pkb runs` lists them")

    def tasks(self, run_id: str, *, state: str | None = None) -> list[Task]:
        """In the order in which they were added."""
        rows = self.connection.execute(
            "SELECT * FROM tasks WHERE run_id = ? AND (? IS NULL OR state = ?) ORDER BY rowid", (run_id, state, state)
        ).fetchall()
        return [task_of(row) for row in rows]

    def task(self, run_id: str, key: str) -> Task:
        row = self.connection.execute("SELECT * FROM tasks WHERE run_id = ? AND key = ?", (run_id, key)).fetchone()
        if row is None:
            raise UserError(f"run {run_id} has no task {key}")
        return task_of(row)

    def evaluations(self, run_ids: Iterable[str]) -> Iterator[EvaluationRow]:
        """Light rows, run by run, in the order in which they were recorded. No cursor stays open between rows, so the
        caller may take its time and may write."""
        for run_id in run_ids:
            position = -1
            while page := self.connection.execute(_EVALUATIONS, (run_id, position, _PAGE)).fetchall():
                for row in page:
                    yield _evaluation(row)
                position = page[-1]["position"]

    def steps(self, run_id: str, task_key: str | None = None) -> list[Step]:
        """Of one task, or of all of them; in the order of steps."""
        rows = self.connection.execute(
            "SELECT * FROM steps WHERE run_id = ? AND (? IS NULL OR task_key = ?) ORDER BY step",
            (run_id, task_key, task_key),
        ).fetchall()
        return [Step(**dict(row)) for row in rows]

    def candidates(self, run_id: str) -> list[Candidate]:
        rows = self.connection.execute("SELECT * FROM candidates WHERE run_id = ? ORDER BY rowid", (run_id,)).fetchall()
        return [Candidate(**dict(row)) for row in rows]

    def document(self, sha: str) -> dict[str, Any]:
        """A whole verdict, as `pkb eval --json` writes it now, whichever version wrote it."""
        return current(json.loads(self.objects.get(sha)))

    def source(self, sha: str) -> str:
        """A candidate's text. Its bytes as they were are `reader.objects.get(sha)`."""
        return self.objects.get(sha).decode("utf-8", errors="replace")

    def transcript(self, sha: str) -> Any:
        """What was said at a step: whatever JSON the writer gave."""
        return json.loads(self.objects.get(sha))

    def summary(self, run: Run) -> RunSummary:
        execute = self.connection.execute
        tasks = dict(
            map(tuple, execute("SELECT state, count(*) FROM tasks WHERE run_id = ? GROUP BY state", (run.id,)))
        )
        (evaluations,) = execute("SELECT count(*) FROM evaluations WHERE run_id = ?", (run.id,)).fetchone()
        places = execute(
            "SELECT DISTINCT platform, hardware FROM evaluations WHERE run_id = ? ORDER BY 1, 2", (run.id,)
        ).fetchall()
        claimed = self.tasks(run.id, state="claimed") if tasks.get("claimed") else []
        return RunSummary(
            run, tasks, evaluations, tuple(dict.fromkeys(row[0] for row in places)),
            tuple(dict.fromkeys(row[1] for row in places)), sum(not is_held(task) for task in claimed),
        )  # fmt: skip


def is_held(task: Task) -> bool:
    """Whether the task's worker may still be at it: its lease runs, and it is not known to be gone."""
    if task.state != "claimed" or task.claimed_by is None or task.lease_until is None:
        return False
    return time.time() < task.lease_until and not Worker.parse(task.claimed_by).surely_gone()


def task_of(row: sqlite3.Row) -> Task:
    return Task(**{name: value for name, value in _with_case(row).items() if name not in ("key", "problem_id")})


def _run(row: sqlite3.Row) -> Run:
    return Run(**(dict(row) | {"config": json.loads(row["config"])}))


def _evaluation(row: sqlite3.Row) -> EvaluationRow:
    columns = _with_case(row) | {"paths": tuple(json.loads(row["paths"]))}
    del columns["position"]
    return EvaluationRow(**columns)


def _with_case(row: sqlite3.Row) -> dict[str, Any]:
    columns = dict(row)
    return {"case": Case(**{field.name: columns.pop(field.name) for field in fields(Case)})} | columns
