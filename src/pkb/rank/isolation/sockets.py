"""Sockets of other programs that have a name in the file system: Landlock does not guard connecting to them, and who reaches
the user's tmux, an SSH agent or a container engine has left every wall.

/run, where services have theirs, is covered as a whole. Those elsewhere (/tmp, homes) are found by the kernel's list, which is
read before the network namespace is left: it shows the sockets of one. Not found are those with a relative name, those of other
network namespaces, and those that are made later, unless in a folder that is covered.
"""

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from pkb.rank.isolation.namespaces import bind, cover

LISTED = Path("/proc/net/unix")
MOST = 4096
"""Places that are covered one by one."""


def bound_sockets() -> tuple[Path, ...]:
    """Where the sockets of this network namespace have their names."""
    found: dict[Path, None] = {}
    with contextlib.suppress(OSError):
        for line in LISTED.read_bytes().splitlines()[1:]:
            fields = line.split(maxsplit=7)
            if len(fields) == 8 and fields[7].startswith(b"/"):  # an abstract name begins with @
                found[Path(os.fsdecode(fields[7]))] = None
    return tuple(sorted(found))


def cover_sockets(sockets: Sequence[Path], *, services: Sequence[Path], needed: Sequence[Path]) -> str:
    """Cover them, but for those of `services`, for all processes of this mount namespace: with its whole folder, if none of
    what is needed lies in it or around it. Returns the report's words."""
    kept = [*needed, Path("/dev")]
    places: dict[Path, None] = {}
    for path in sockets:
        if any(path.is_relative_to(service) for service in services):
            continue
        folder = path.parent
        alone = not any(folder.is_relative_to(place) or place.is_relative_to(folder) for place in kept)
        places[folder if alone else path] = None
    if len(places) > MOST:
        return f"off: {len(places)} places with sockets of other programs"
    try:
        for place in places:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                mode = _mode(place)
                if stat.S_ISDIR(mode):
                    cover(place)
                elif stat.S_ISSOCK(mode):
                    bind(Path("/dev/null"), place)
    except OSError as error:
        return f"off: {error.strerror or error}"
    return "on"


def _mode(place: Path) -> int:
    """0 where this process may not even look: nor may a rank then, which has no more rights. Mail and directory services have
    theirs in such folders, and the list shows them to every user."""
    try:
        return place.stat().st_mode
    except PermissionError:
        return 0
