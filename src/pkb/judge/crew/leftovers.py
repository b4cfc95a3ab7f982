"""Removes what a judge that was killed outright could not: its temporary folders.

The processes of a killed judge die by themselves (each dies with its parent), but a folder under the temporary directory
stays. Its name says whose it is, `pkb-<kind>-<pid of the judge>-<random>`, and the next run takes it away.
"""

import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from pkb.platforms.short_folder import short_parent

FOLDER = re.compile(r"pkb-(?P<kind>oracle|candidate|mps|build)-(?P<pid>\d+)-[^/]+")
OLD_ENOUGH_S = 600.0
"""A judge in another PID namespace that shares our temporary directory looks dead from here. Few live longer than this."""


def remove_tree(folder: Path) -> None:
    """Whatever a candidate has made in it: folders in folders by the thousand are too deep for Python's own function before
    3.13, which takes a call and a descriptor for each."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        subprocess.run(["rm", "-rf", "--", str(folder)], stderr=subprocess.DEVNULL, check=False)


@contextlib.contextmanager
def same_interpreter() -> Iterator[None]:
    """Undoes changes of the mode and owner of Python's own file. /proc/self/exe leads every rank to it past the read-only
    mounts, and without the right to be run it would end all later use of it."""
    path = Path(sys.executable).resolve()
    before = path.stat()
    try:
        yield
    finally:
        now = path.stat()
        if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
            os.chown(path, before.st_uid, before.st_gid)
        if now.st_mode != before.st_mode:
            path.chmod(stat.S_IMODE(before.st_mode))


def sweep(*, older_than_s: float = OLD_ENOUGH_S) -> list[Path]:
    """Removes the folders of judges that no longer run, and returns them. Never raises: a failure here must not stop a run."""
    removed = []
    for path in stale_folders(older_than_s=older_than_s):
        remove_tree(path)
        if not path.exists():
            removed.append(path)
    return removed


def stale_folders(*, older_than_s: float = OLD_ENOUGH_S) -> list[Path]:
    """Folders of ours, by name and owner, whose judge is no longer there."""
    found = []
    for parent in {Path(tempfile.gettempdir()), short_parent()}:
        with contextlib.suppress(OSError):
            for path in parent.iterdir():
                named = FOLDER.fullmatch(path.name)
                # A process that has got the same id since only puts the removal off.
                if named and _is_ours(path, older_than_s) and not psutil.pid_exists(int(named["pid"])):
                    found.append(path)
    return sorted(found)


def _is_ours(path: Path, older_than_s: float) -> bool:
    """A real folder of this user: anybody may put a link of that name into a common /tmp."""
    try:
        facts = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and time.time() - facts.st_mtime >= older_than_s
