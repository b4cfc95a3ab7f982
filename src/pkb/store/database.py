"""The open store: one SQLite connection a thread, write transactions, and the objects beside them.

WAL lets readers go on while somebody writes; `synchronous=FULL` makes a commit wait for the disk, so what was acknowledged
is there after kill -9 and after a power failure. WAL needs shared memory: the folder must be on a disk of this machine.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from pkb.store import schema
from pkb.store.objects import Objects
from pkb.types.errors import UserError
from pkb.types.file_lock import lock

DEFAULT_ROOT = "pkb-runs"
ROOT_VARIABLE = "PKB_STORE"
LOGS = "logs"
"""Folder of inspect's logs inside a store, one for each run; `inspect view --log-dir STORE/logs` shows them."""
BUSY_S = 60.0
"""How long a writer waits for another one; a transaction of ours takes milliseconds."""

# Connections of a parent process. Closing one in the child would drop the parent's file locks, so they are kept for ever.
_INHERITED: list[Any] = []


def root_folder(option: Path | None = None) -> Path:
    """Where runs are kept: the option, else PKB_STORE, else ./pkb-runs."""
    return option or Path(os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT)


class Database:
    writable = False

    def __init__(self, root: Path, *, create: bool = False) -> None:
        self.root = root.absolute()
        self.path = self.root / "pkb.db"
        self.objects = Objects(self.root / "objects")
        self._pid = os.getpid()
        self._opened: list[tuple[threading.Thread, sqlite3.Connection]] = []
        self._guard = threading.Lock()
        self._local = threading.local()
        if create:
            try:
                self.objects.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(f"cannot make {self.root}: {error.strerror}", "give another --store") from error
        elif not self.path.is_file():
            raise UserError(f"no runs are stored in {root}", f"give --store DIR or set {ROOT_VARIABLE}")
        self._prepare()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        with self._guard:
            for _, connection in self._opened:
                connection.close()
            self._opened.clear()
            self._local = threading.local()

    @property
    def connection(self) -> sqlite3.Connection:
        """This thread's. SQLite forbids a connection to cross a fork, so a child opens its own."""
        if self._pid != os.getpid():
            _INHERITED.extend((self._opened, self._local))
            self._opened, self._local, self._guard = [], threading.local(), threading.Lock()
            self._pid = os.getpid()
        existing: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if existing is None:
            existing = self._local.connection = self._open_for_use()
            with self._guard:
                for thread, connection in self._opened:
                    if not thread.is_alive():
                        connection.close()
                self._opened = [(t, c) for t, c in self._opened if t.is_alive()]
                self._opened.append((threading.current_thread(), existing))
        return existing

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of it or nothing. Takes the write lock at once: a read that grows into a write could lose to another."""
        if not self.writable:
            raise RuntimeError("a Reader does not write; open a Store")
        connection = self.connection
        with _in_words(self.path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                # Another process may have brought the store to a newer version since we opened it.
                schema.version_of(connection, self.path)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _connect(self) -> sqlite3.Connection:
        target = self.path.as_uri()
        if not os.access(self.root, os.W_OK):
            wal = self.path.with_name("pkb.db-wal")
            if wal.exists() and wal.stat().st_size:
                raise UserError(
                    f"{self.root} cannot be written and holds an unfinished write-ahead log", "copy it first"
                )
            target += "?immutable=1"  # nobody can write there, so nothing need be locked
        with _in_words(self.path):
            # check_same_thread off: `close` may come from another thread; every other use is by the thread's own.
            connection = sqlite3.connect(
                target, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def _open_for_use(self) -> sqlite3.Connection:
        connection = self._connect()
        if not self.writable:
            connection.execute("PRAGMA query_only = ON")
        return connection

    def _prepare(self) -> None:
        """Creates or upgrades. A file lock keeps two processes from switching a new file to WAL at the same time."""
        connection = self._connect()
        try:
            with _in_words(self.path):
                version = schema.version_of(connection, self.path)
                (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            if version == schema.VERSION and (mode == "wal" or not os.access(self.root, os.W_OK)):
                return
            if not os.access(self.root, os.W_OK):
                raise UserError(f"{self.path} is of an older version and cannot be written", "copy the folder first")
            with _file_lock(self.root / ".opening"), _in_words(self.path):
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("BEGIN IMMEDIATE")
                schema.migrate(connection, start=schema.version_of(connection, self.path))
                connection.execute("COMMIT")
        finally:
            connection.close()


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    """What the machine does to a database is told in a line; an error in our SQL keeps its traceback."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        text = str(error)
        if "not a database" in text or "malformed" in text:
            raise UserError(
                f"{path} is not a store of pkb, or it is damaged: {text}", "give another --store"
            ) from error
        if "locked" in text or "busy" in text:
            raise UserError(f"{path} was locked by another process for {BUSY_S:.0f} s", "see who uses it") from error
        if "full" in text or "unable to open" in text or "disk I/O" in text or "readonly" in text:
            raise UserError(f"cannot use {path}: {text}", "free space, or give another --store") from error
        raise


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        try:
            lock(file.fileno(), wait_s=BUSY_S)
        except TimeoutError:
            raise UserError(f"{path} was locked by another process for {BUSY_S:.0f} s") from None
        yield
