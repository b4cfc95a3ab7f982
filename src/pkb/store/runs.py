"""Writing runs: making one with its tasks, changing its state, deleting it."""

import random
import shutil
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pkb.store.database import LOGS
from pkb.store.reader import Reader, is_held
from pkb.store.records import RUN_KINDS, RUN_STATES, CandidateFile, Run, RunKind, RunState, Task, TaskSpec, dumps
from pkb.store.schema import OBJECT_COLUMNS
from pkb.store.secret_check import refuse_secrets
from pkb.types.errors import UserError

_ADJECTIVES = (
    "amber bold brave bright brisk calm clear clever cool crisp deft eager early fair fine fleet fresh gentle glad "
    "grand green keen kind late light lively loud lucid mellow merry mild neat noble plain proud quick quiet rapid rare "
    "ready royal sharp shy silent sleek sly smart snowy soft solid spry steady still sunny swift tidy true vivid warm wise"
)
_ANIMALS = (
    "badger bear beaver bison boar cat crane crow deer dove duck eagle elk falcon finch fox frog gecko goat goose hare "
    "hawk heron horse ibex jay kite koala lark lemur lion lynx magpie marten mole moose newt otter owl panda puffin quail "
    "rabbit raven robin salmon seal shrew sloth snail sparrow stoat stork swan tiger toad trout turtle vole whale wolf wren"
)

REMOVED_AT_ONCE = 100
"""Objects that are removed while the write lock is held: milliseconds."""


def now_utc() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class RunWriter(Reader):
    def create_run(
        self,
        kind: RunKind,
        *,
        name: str = "",
        config: Mapping[str, Any] | None = None,
        note: str = "",
        tasks: Iterable[TaskSpec] = (),
        candidates: Mapping[str, CandidateFile] | None = None,
    ) -> Run:
        """A new run, with its tasks if they are known: all of it appears at once or not at all."""
        if kind not in RUN_KINDS:
            raise UserError(f"no kind of run is called {kind!r}", f"kinds are {', '.join(RUN_KINDS)}")
        refuse_secrets(dict(config or {}))
        text = dumps(dict(config or {}))
        files = dict(candidates or {})
        specs = {task.key: task for task in tasks}
        if strangers := set(files) - set(specs):
            raise ValueError(f"candidates for tasks that are not given: {sorted(strangers)[:3]}")
        shas = {key: self.objects.put(file.source) for key, file in files.items()}
        with self.transaction() as connection:
            created = now_utc()
            run_id = _new_id(connection, created)
            connection.execute(
                "INSERT INTO runs (id, name, kind, created_at, config, state, note) VALUES (?, ?, ?, ?, ?, 'open', ?)",
                (run_id, name, kind, created, text, note),
            )
            self._keep({sha: files[key].source for key, sha in shas.items()})
            for key, spec in specs.items():
                case = spec.case
                connection.execute(
                    "INSERT INTO tasks (run_id, key, collection, problem, problem_id, backend, sample, platform,"
                    " ranks, size, dtype, plan, state, attempts, error, candidate_sha)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'waiting', 0, '', ?)",
                    (run_id, key, spec.collection, case.problem, spec.problem_id, spec.backend, spec.sample, case.platform,
                     case.ranks, case.size, case.dtype, case.plan, shas.get(key)),
                )  # fmt: skip
                if key in files:
                    insert_candidate(connection, run_id, sha=shas[key], file=files[key], task=spec)
        return self.run(run_id)

    def set_run_state(self, run_id: str, state: RunState) -> None:
        """`complete` is refused while work is left: a run that says so has an outcome for every task."""
        if state not in RUN_STATES:
            raise UserError(f"no state of a run is called {state!r}", f"states are {', '.join(RUN_STATES)}")
        with self.transaction() as connection:
            if state == "complete":
                (left,) = connection.execute(
                    "SELECT count(*) FROM tasks WHERE run_id = ? AND state IN ('waiting', 'claimed')", (run_id,)
                ).fetchone()
                if left:
                    raise UserError(f"run {run_id} has {left} tasks left", "resume it, or call it interrupted")
            if not connection.execute("UPDATE runs SET state = ? WHERE id = ?", (state, run_id)).rowcount:
                raise UserError(f"no run is called {run_id!r}")

    def delete_run(self, run_id: str) -> None:
        """Its rows; objects that nothing else refers to go with `collect_garbage`. Refused while somebody works on it."""
        with self.transaction() as connection:
            held = [task for task in self.tasks(run_id, state="claimed") if is_held(task)]
            if held:
                raise UserError(f"run {run_id} is being worked on by {held[0].claimed_by}", "stop that first")
            if not connection.execute("DELETE FROM runs WHERE id = ?", (run_id,)).rowcount:
                raise UserError(f"no run is called {run_id!r}")
        self._remove_logs()

    def _remove_logs(self) -> int:
        """Of runs that are no more, also of those whose deleter was killed before it came to this; says how many folders."""
        logs = self.root / LOGS
        if not logs.is_dir():
            return 0
        folders = [folder for folder in logs.iterdir() if folder.is_dir()]  # before the rows: a new run's are not in it
        known = {run.id for run in self.runs()}
        gone = [folder for folder in folders if folder.name not in known]
        for folder in gone:
            shutil.rmtree(folder, ignore_errors=True)
        return len(gone)

    def collect_garbage(self) -> int:
        """Removes objects that no row refers to and what killed writers left; says how many files.

        Looking through all files takes as long as there are many, so it is done without the write lock. What seems to be
        garbage is then removed a few at a time, each few inside a transaction that looks once more whether a row has come
        to refer to them. A writer puts its objects before it takes that lock, and inside its own transaction looks again
        whether they are still there (`_keep`): between the two nothing can be lost.
        """
        removed = self._remove_logs()
        listed = list(self.objects.names())  # before the rows: what is put meanwhile is not in it
        used = _referenced(self.connection)
        doubtful = [sha for sha in listed if sha not in used]
        for start in range(0, len(doubtful), REMOVED_AT_ONCE):
            some = doubtful[start : start + REMOVED_AT_ONCE]
            with self.transaction() as connection:
                for sha in set(some) - _referenced(connection, among=some):
                    self.objects.remove(sha)
                    removed += 1
        for path in self.objects.stale():
            path.unlink(missing_ok=True)
            removed += 1
        return removed

    def _keep(self, blobs: Mapping[str, bytes]) -> None:
        """Inside a transaction: what was put before it and has been collected since is put again."""
        for sha, data in blobs.items():
            if not self.objects.has(sha):
                self.objects.put(data)


def _referenced(connection: sqlite3.Connection, *, among: Sequence[str] | None = None) -> set[str]:
    """Objects that rows refer to: all, or those of `among`."""
    used: set[str] = set()
    for table, column, _ in OBJECT_COLUMNS:
        which = "IS NOT NULL" if among is None else f"IN ({', '.join('?' * len(among))})"
        rows = connection.execute(f"SELECT DISTINCT {column} FROM {table} WHERE {column} {which}", among or ())
        used.update(row[0] for row in rows)
    return used


def insert_candidate(
    connection: sqlite3.Connection, run_id: str, *, sha: str, file: CandidateFile, task: TaskSpec | Task
) -> None:
    connection.execute(
        "INSERT INTO candidates (run_id, sha, filename, backend, problem_id, origin)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (run_id, sha, origin) DO NOTHING",
        (run_id, sha, file.filename, task.backend, task.problem_id, file.origin),
    )


def _new_id(connection: sqlite3.Connection, created: str) -> str:
    """Inside a transaction, so that no other process can take the same one in between."""
    moment = datetime.fromisoformat(created).strftime("%Y%m%d-%H%M%S")
    dice = random.SystemRandom()
    while True:
        run_id = f"{moment}-{dice.choice(_ADJECTIVES.split())}-{dice.choice(_ANIMALS.split())}"
        if connection.execute("SELECT 1 FROM runs WHERE id = ?", (run_id,)).fetchone() is None:
            return run_id
