"""A side's memory bounded by the kernel, where this machine lends us a cgroup: all of it, whoever holds it and however.

Version 2 only, and only below a group that has memory control switched on and lets us make another: a session's parent under
systemd, say. Nothing that exists is changed. Elsewhere the judge counts (`limits.py`), which it does in any case.
"""

import contextlib
import os
import time
from pathlib import Path

import psutil

MOUNT = Path("/sys/fs/cgroup")
NAME = "pkb-memory-"
"""Then the process id of the judge, and a number."""


def bound_memory(pid: int, memory_bytes: int) -> "tuple[MemoryGroup | None, str]":
    """Makes a group for this process and its children; returns it with the report's words for what limits their memory."""
    group = None
    try:
        group = MemoryGroup.make(memory_bytes)
        group.adopt(pid)
    except OSError as error:
        if group is not None:
            group.remove()
        return None, f"on: counted by the judge; {error.strerror or error}"
    return group, "on: by the kernel, in a cgroup, and counted by the judge"


class MemoryGroup:
    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def make(cls, memory_bytes: int, *, mount: Path = MOUNT) -> "MemoryGroup":
        """A group for one side; `OSError` says why there is none."""
        place = _place(mount)
        _remove_stale(place)
        path = place / f"{NAME}{os.getpid()}-{time.monotonic_ns()}"
        path.mkdir()
        group = cls(path)
        try:
            (path / "memory.max").write_text(str(memory_bytes))
            (path / "memory.oom.group").write_text("1")  # the whole side, rather than whom the kernel picks
            with contextlib.suppress(FileNotFoundError):  # a kernel without swap
                (path / "memory.swap.max").write_text("0")
        except OSError:
            group.remove()
            raise
        return group

    def adopt(self, pid: int) -> None:
        """From now on the memory of this process and its children is counted here."""
        (self._path / "cgroup.procs").write_text(str(pid))

    def exceeded(self) -> bool:
        """Whether the kernel has ended the side because of its memory."""
        with contextlib.suppress(OSError, ValueError):
            events = dict(line.split() for line in (self._path / "memory.events").read_text().splitlines())
            return int(events.get("oom_kill", 0)) > 0
        return False

    def remove(self) -> None:
        """Removes the group; its processes must have ended."""
        for _ in range(20):
            with contextlib.suppress(FileNotFoundError):
                try:
                    self._path.rmdir()
                except OSError:  # the last of them are still being reaped
                    time.sleep(0.05)
                    continue
            return


def _place(mount: Path) -> Path:
    """The nearest group in which one of ours would have its memory controlled: our own or its parent."""
    if not (mount / "cgroup.controllers").exists():
        raise OSError("no cgroup of version 2")
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = mount / next((line[3:] for line in lines if line.startswith("0::")), "/").lstrip("/")
    for place in (own.parent, own):
        if place.is_relative_to(mount) and "memory" in (place / "cgroup.subtree_control").read_text().split():
            return place
    raise OSError("no cgroup of ours with memory control")


def _remove_stale(place: Path) -> None:
    """Groups of judges that were killed: empty, since their processes died with them."""
    for path in place.glob(f"{NAME}*"):
        pid = path.name.removeprefix(NAME).split("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            with contextlib.suppress(OSError):
                path.rmdir()
