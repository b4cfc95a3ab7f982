"""Files named by the hash of what they hold: written once, whole or not at all, never changed.

An object appears under its name by a rename of a file that is complete and on disk, so a reader never meets half of one, at
whatever moment a writer is killed. What a killed writer leaves is a file with a temporary name, which nobody reads.
"""

import hashlib
import os
import re
import time
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path

from pkb.types.errors import UserError

NAME = re.compile(r"[0-9a-f]{64}")
TEMPORARY = ".writing-"
STALE_S = 3600.0
"""No write takes an hour: an older temporary file belongs to a writer that was killed."""


class ObjectLost(UserError):
    """An object that a row refers to is missing or damaged."""

    def __init__(self, sha: str, what: str) -> None:
        super().__init__(f"object {sha[:12]} of the store is {what}", "`pkb runs check` says what it belongs to")
        self.sha = sha
        self.what = what


def sha_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Objects:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, sha: str) -> Path:
        if not NAME.fullmatch(sha):
            raise ValueError(f"{sha!r} is no SHA-256")
        return self.folder / sha[:2] / sha

    def put(self, data: bytes) -> str:
        """Stores it and gives its name; it is on disk when this returns. A damaged object of that name is repaired."""
        sha = sha_of(data)
        path = self.path(sha)
        try:
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True, exist_ok=True)
                _sync_folder(self.folder)
            if not self._intact(sha):
                self._write(path, zlib.compress(data, 6))
            # Also when another process has just put it there: its rename may not be on disk yet, and we vouch for it.
            _sync_folder(path.parent)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}", "free space, or give another --store") from error
        return sha

    def get(self, sha: str) -> bytes:
        try:
            data = zlib.decompress(self.path(sha).read_bytes())
        except FileNotFoundError:
            raise ObjectLost(sha, "missing") from None
        except (zlib.error, OSError) as error:
            raise ObjectLost(sha, f"damaged: {error}") from error
        if sha_of(data) != sha:
            raise ObjectLost(sha, "damaged: its content has another hash")
        return data

    def has(self, sha: str) -> bool:
        return self.path(sha).is_file()

    def names(self) -> Iterator[str]:
        for path in sorted(self.folder.glob("??/*")):
            if NAME.fullmatch(path.name):
                yield path.name

    def stale(self, *, older_than_s: float = STALE_S) -> list[Path]:
        """What killed writers have left behind."""
        limit = time.time() - older_than_s
        found = []
        for path in self.folder.glob(f"??/{TEMPORARY}*"):
            try:
                if path.stat().st_mtime <= limit:
                    found.append(path)
            except FileNotFoundError:  # its writer has just renamed it
                continue
        return sorted(found)

    def remove(self, sha: str) -> None:
        self.path(sha).unlink(missing_ok=True)

    def _intact(self, sha: str) -> bool:
        if not self.has(sha):
            return False
        try:
            self.get(sha)
        except ObjectLost:
            return False
        return True

    def _write(self, path: Path, content: bytes) -> None:
        temporary = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _sync_folder(folder: Path) -> None:
    """A rename survives a power failure only once the folder is on disk as well."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
