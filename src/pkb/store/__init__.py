"""Runs on disk: SQLite and files named by their hash. `Reader(root)` reads, `Store(root)` writes as well; see docs/store.md."""

from pkb.store.database import LOGS, root_folder
from pkb.store.objects import ObjectLost
from pkb.store.reader import Reader
from pkb.store.records import Candidate, CandidateFile, EvaluationRow, Run, RunSummary, Step, Task, TaskSpec
from pkb.store.store import Store
from pkb.store.worker import Worker

__all__ = [
    "LOGS",
    "Candidate",
    "CandidateFile",
    "EvaluationRow",
    "ObjectLost",
    "Reader",
    "Run",
    "RunSummary",
    "Step",
    "Store",
    "Task",
    "TaskSpec",
    "Worker",
    "root_folder",
]
