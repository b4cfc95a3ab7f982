"""The tables, and how an older store becomes a newer one.

`MIGRATIONS[n]` brings a store from version n to n + 1; a new store runs all of them. Never edit one that was released:
append. The version is SQLite's `user_version`, written in the same transaction as the change.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from pkb.types.errors import UserError

APPLICATION_ID = 0x504B4231  # "PKB1": tells our file from any other SQLite database

_TABLES = (
    """CREATE TABLE runs (
        id TEXT PRIMARY KEY, name TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('sweep', 'generate', 'agent', 'import')),
        created_at TEXT NOT NULL, config TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('open', 'complete', 'interrupted')),
        note TEXT NOT NULL)""",
    """CREATE TABLE tasks (
        run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE, key TEXT NOT NULL,
        collection TEXT NOT NULL, problem TEXT NOT NULL, problem_id INTEGER NOT NULL, backend TEXT NOT NULL,
        sample INTEGER NOT NULL, platform TEXT NOT NULL, ranks INTEGER NOT NULL, size TEXT NOT NULL,
        dtype TEXT NOT NULL, plan TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('waiting', 'claimed', 'done', 'failed')),
        claimed_by TEXT, claimed_at REAL, lease_until REAL, attempts INTEGER NOT NULL, error TEXT NOT NULL,
        candidate_sha TEXT,
        PRIMARY KEY (run_id, key))""",
    "CREATE INDEX tasks_by_state ON tasks (run_id, state)",
    """CREATE TABLE candidates (
        run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE, sha TEXT NOT NULL, filename TEXT NOT NULL,
        backend TEXT NOT NULL, problem_id INTEGER NOT NULL, origin TEXT NOT NULL,
        PRIMARY KEY (run_id, sha, origin))""",
    """CREATE TABLE steps (
        run_id TEXT NOT NULL, task_key TEXT NOT NULL, step INTEGER NOT NULL, transcript_sha TEXT NOT NULL,
        candidate_sha TEXT, tokens_in INTEGER, tokens_out INTEGER, cost_usd REAL, seconds REAL,
        stop_reason TEXT NOT NULL, error TEXT NOT NULL, created_at TEXT NOT NULL,
        PRIMARY KEY (run_id, task_key, step),
        FOREIGN KEY (run_id, task_key) REFERENCES tasks (run_id, key) ON DELETE CASCADE)""",
    """CREATE TABLE evaluations (
        run_id TEXT NOT NULL, task_key TEXT NOT NULL, step INTEGER NOT NULL,
        verdict TEXT NOT NULL, stage TEXT NOT NULL, detail TEXT NOT NULL, decision TEXT, speedup REAL,
        speedup_low REAL, speedup_high REAL, reference_us REAL, candidate_us REAL, floor_us REAL,
        communication TEXT NOT NULL, paths TEXT NOT NULL, race_kind TEXT, failure_kind TEXT, failure_message TEXT,
        platform TEXT NOT NULL, hardware TEXT NOT NULL, ranks INTEGER NOT NULL, size TEXT NOT NULL,
        dtype TEXT NOT NULL, plan TEXT NOT NULL,
        document_sha TEXT NOT NULL, candidate_sha TEXT, created_at TEXT NOT NULL,
        PRIMARY KEY (run_id, task_key, step),
        FOREIGN KEY (run_id, task_key) REFERENCES tasks (run_id, key) ON DELETE CASCADE)""",
)

MIGRATIONS: tuple[Sequence[str], ...] = (_TABLES,)
VERSION = len(MIGRATIONS)

OBJECT_COLUMNS = (
    ("tasks", "candidate_sha", "key"),
    ("candidates", "sha", "origin"),
    ("steps", "transcript_sha", "task_key"),
    ("steps", "candidate_sha", "task_key"),
    ("evaluations", "document_sha", "task_key"),
    ("evaluations", "candidate_sha", "task_key"),
)
"""Every column that names an object, with the column that says whose it is. An object in none of them is garbage."""


def version_of(connection: sqlite3.Connection, path: Path) -> int:
    """The version of a store, 0 for an empty file; refuses a newer one and what is not ours."""
    # In this order: another process may be making the store between two of these lines, and tables come with their mark.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if tables and application != APPLICATION_ID:
        raise UserError(f"{path} is a database of another program", "give another --store")
    if version > VERSION:
        raise UserError(
            f"{path} was written by a newer pkb (store version {version}, this one knows {VERSION})", "upgrade pkb"
        )
    return int(version)


def migrate(connection: sqlite3.Connection, *, start: int, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Brings an open transaction's store up to date. The caller commits, so a kill in between leaves the old version."""
    for statements in migrations[start:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {len(migrations)}")
