"""Puts the records of docs/records/frontier-*.jsonl into a store as one run, so that `pkb report` shows them. No GPU is needed.
Until a GPU has judged some tree by both plans, they are those of platform cpu, in docs/records/frontier-cpu.

    python tools/frontier_run.py --store out/store

Standard output has the run's id, or an empty line where there are no records. A run of the same records is not made twice. What
the plan `published` says is a collection of its own.
"""

import argparse
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from pkb.analysis.lost import AS_PUBLISHED
from pkb.report.frontier import frontier_files
from pkb.store import Run, Store, TaskSpec
from pkb.types.case import Case
from pkb.types.document import VerdictDocument
from pkb.types.plan import PUBLISHED

ROOT = Path(__file__).resolve().parents[1]


def task_of(record: dict[str, Any]) -> TaskSpec:
    said = record["evaluation"]
    stem = f"{said['problem']['id']:02d}_{said['problem']['name']}"
    case = Case(stem, said["platform"], said["ranks"], said["size"], said["dtype"], said["plan"])
    apart = AS_PUBLISHED if said["plan"] == PUBLISHED else ""
    return TaskSpec(
        collection=record["collection"] + apart, case=case, backend=said["candidate"].get("backend") or "other",
        sample=record["sample"],
    )  # fmt: skip


def load(store: Store, folder: Path) -> Run | None:
    """The run of these records; None where there are none."""
    texts = {path: path.read_text() for path in frontier_files(folder)}
    records = [record for path, text in texts.items() for record in _records(path, text)]
    if not records:
        return None
    name = f"frontier-{hashlib.sha256(''.join(texts.values()).encode()).hexdigest()[:12]}"
    run = next((run for run in store.runs() if run.name == name), None)
    if run is not None and run.state == "complete":
        return run
    tasks: dict[str, tuple[TaskSpec, dict[str, Any]]] = {}
    for record in records:
        task = task_of(record)
        while task.key in tasks:  # two texts for one problem: none takes the other's place
            task = replace(task, sample=task.sample + 1)
        tasks[task.key] = task, record
    run = run or store.create_run("import", name=name, tasks=[task for task, _ in tasks.values()])
    there = {row.task_key for row in store.evaluations([run.id])}  # of a run that was stopped half-way
    for key, (_, record) in tasks.items():
        if key not in there:
            store.record_evaluation(run.id, key, VerdictDocument(whole(record["evaluation"])))
    store.set_run_state(run.id, "complete")
    return run


def _records(path: Path, text: str) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in text.split("\n") if line]
    except ValueError as error:
        raise SystemExit(
            f"{path} has a line that is no record ({error}): take it out, and judge that file again"
        ) from error


def whole(said: dict[str, Any]) -> dict[str, Any]:
    """With the fields that a record leaves out because they are empty."""
    empty: dict[str, Any] = {
        "hardware": "", "communication": "unknown", "paths": [], "failing_ranks": [], "mismatch": None, "race_kind": None,
        "rank_states": [], "failure": None, "timing": None, "profile": None, "hints": [], "checks": [], "stage_seconds": {},
        "isolation": {}, "environment": {}, "output_tail": "", "started_at": "",
    }  # fmt: skip
    candidate = {"file": "", "sha256": "", "backend": ""} | said["candidate"]
    return empty | said | {"candidate": candidate}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--records", type=Path, default=ROOT / "docs" / "records")
    options = parser.parse_args()
    with Store(options.store) as store:
        run = load(store, options.records)
    print(run.id if run else "")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
