"""A run for other programs: JSON lines with whole verdicts, or a flat Parquet table."""

import json
import os
import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import IO

from pkb.store.reader import Reader
from pkb.store.records import Run, Step, Task
from pkb.types.errors import UserError
from pkb.types.json_value import Json

_TEXT = (
    "run_id", "run_name", "run_kind", "run_created_at", "task_key", "collection", "problem", "backend", "verdict", "stage",
    "detail", "decision", "communication", "race_kind", "failure_kind", "failure_message", "platform", "hardware", "size",
    "dtype", "plan", "document_sha", "candidate_sha", "created_at",
)  # fmt: skip
_WHOLE = ("step", "problem_id", "sample", "ranks", "tokens_in", "tokens_out")
_REAL = (
    "speedup", "speedup_low", "speedup_high", "reference_us", "candidate_us", "floor_us", "cost_usd", "model_seconds",
)  # fmt: skip
_BATCH = 1000


def jsonl_rows(reader: Reader, runs: Iterable[Run], *, sources: bool = False) -> Iterator[dict[str, Json]]:
    """One evaluation each: the run, the task, the step, the whole verdict, and what a model said about it if one did.
    Then one line for each answer that was not judged."""
    for run in runs:
        tasks = {task.key: task for task in reader.tasks(run.id)}
        said = {(step.task_key, step.step): step for step in reader.steps(run.id)}
        judged: set[str] = set()
        for row in reader.evaluations([run.id]):
            judged.add(row.task_key)
            line = _line(run, tasks[row.task_key], said.pop((row.task_key, row.step), None)) | {
                "step": row.step,
                "evaluation": reader.document(row.document_sha),
                "candidate_sha": row.candidate_sha,
                "recorded_at": row.created_at,
            }
            if sources:
                line["source"] = reader.source(row.candidate_sha) if row.candidate_sha else None
            yield line
        # Left out, a model that answered without a candidate would count as never asked, and an agent's last words as free.
        for (key, number), step in said.items():
            if key in judged or tasks[key].state == "done":
                missing: dict[str, Json] = {"evaluation": None, "candidate_sha": None}
                yield _line(run, tasks[key], step) | missing | {"step": number, "recorded_at": step.created_at}


def _line(run: Run, task: Task, answer: Step | None) -> dict[str, Json]:
    return {"run": asdict(run), "task": task.to_dict(), "answer": asdict(answer) if answer else None}


def write_jsonl(reader: Reader, runs: Iterable[Run], *, out: str, sources: bool = False) -> int:
    """To a file, which appears when it is whole, or to standard output for `-`. Says how many lines."""
    count = 0
    with _destination(out) as file:
        for line in jsonl_rows(reader, runs, sources=sources):
            file.write((json.dumps(line, allow_nan=False, ensure_ascii=False) + "\n").encode())
            count += 1
    return count


def write_parquet(reader: Reader, runs: Iterable[Run], *, out: str) -> int:
    """Flat columns, one row an evaluation; `paths` is a list. Says how many rows."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UserError("Parquet needs pyarrow", "pip install 'pkb[export]'") from None
    if out == "-":
        raise UserError("Parquet does not go to standard output", "give --out FILE")
    schema = pyarrow.schema(
        [(name, pyarrow.string()) for name in _TEXT]
        + [(name, pyarrow.int64()) for name in _WHOLE]
        + [(name, pyarrow.float64()) for name in _REAL]
        + [("paths", pyarrow.list_(pyarrow.string()))]
    )
    count = 0
    with _destination(out) as file, pyarrow.parquet.ParquetWriter(file, schema) as writer:
        rows = _flat_rows(reader, runs)
        while batch := list(islice(rows, _BATCH)):
            writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))
            count += len(batch)
    return count


def _flat_rows(reader: Reader, runs: Iterable[Run]) -> Iterator[dict[str, Json]]:
    for run in runs:
        of_run = {"run_name": run.name, "run_kind": run.kind, "run_created_at": run.created_at}
        for row in reader.evaluations([run.id]):
            yield of_run | row.to_dict()


@contextmanager
def _destination(out: str) -> Iterator[IO[bytes]]:
    if out == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(out)
    if path.is_dir():
        raise UserError(f"--out {out} is a directory", "give a file")
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        file = temporary.open("xb")
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}") from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
