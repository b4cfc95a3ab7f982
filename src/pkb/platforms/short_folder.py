"""A place for temporary folders in which sockets lie: the kernel takes paths of 107 bytes, and torch and MPS do not look."""

import os
import stat
import tempfile
from pathlib import Path

from pkb.types.errors import UserError

SOCKET_PATH_BYTES = 107
NEEDED_BYTES = 60
"""For the name of a folder of ours and of a socket in it."""


def check_temporary_folder() -> None:
    """A side has a /dev/shm of its own: a folder of the judge's in the machine's it could not see, and would wait for."""
    folder = tempfile.gettempdir()
    if Path(folder).resolve().is_relative_to("/dev/shm"):
        raise UserError(f"temporary files go to {folder}, which ranks cannot see", "set TMPDIR to a folder elsewhere")


def short_parent() -> Path:
    """The temporary directory, or a folder of this user's in /tmp where that has too long a name (Slurm, Ray)."""
    usual = Path(tempfile.gettempdir())
    return usual if len(os.fsencode(usual)) + NEEDED_BYTES <= SOCKET_PATH_BYTES else _own_folder()


def _own_folder() -> Path:
    folder = Path(f"/tmp/pkb-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
    except OSError as error:
        raise UserError(
            f"cannot make {folder}: {error.strerror}", "set TMPDIR to a folder with a short name"
        ) from error
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
        raise UserError(f"{folder} is somebody else's", "set TMPDIR to a folder with a short name")
    return folder
