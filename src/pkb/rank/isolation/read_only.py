"""All that is mounted becomes read-only for a side, but for what is its own.

Landlock guards contents and names of files. It does not guard their modes, owners, times and attributes, and a candidate runs
as the judge's own user: it could take the compilers their right to be run, open the user's keys to everybody, and date files as
it liked. On a read-only mount the kernel refuses all of that; sockets, pipes and devices there work as before.
"""

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

from pkb.rank.isolation import syscalls as kernel
from pkb.rank.isolation.namespaces import bind

_FROM_HERE, _RECURSIVE, _READ_ONLY = -100, 0x8000, 1


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    )


def make_read_only(own: Sequence[Path], *, private_mounts: bool) -> str:
    """For all processes of this mount namespace, except below `own`, /dev/shm and /proc. Returns the report's words."""
    if not private_mounts:
        return "off: needs a mount namespace"
    writable = [path for path in (*own, Path("/dev/shm"), Path("/proc")) if path.exists()]
    try:
        for path in writable:
            bind(path, path)  # only what is a mount of its own can differ from what is around it
        _change(Path("/"), _RECURSIVE, _MountAttributes(set=_READ_ONLY))
        for path in writable:
            _change(path, 0, _MountAttributes(clear=_READ_ONLY))
    except OSError as error:
        return f"off: {error.strerror or error}"
    return "on"


def _change(path: Path, flags: int, change: _MountAttributes) -> None:
    kernel.syscall(
        kernel.MOUNT_SETATTR, _FROM_HERE, os.fsencode(path), flags, ctypes.byref(change), ctypes.sizeof(change),
        what="read-only mounts",
    )  # fmt: skip
