"""Stops every process of a side while the other side is measured, and makes sure that it stayed stopped.

Found and watched from outside, in the kernel's tables: nothing in the side is asked. A signal cannot be refused; but a process
that is not stopped yet can wake one that is, or fork, so all are looked at again until nothing changes, and the time that each
thread has had on a core since then must still be the same when the side may go on.
"""

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LIMIT_S = 5.0
STILL = "TtZXD"
"""Stopped, traced, dead; or deep in the kernel, from where it comes back to the signal that is waiting for it."""
LOOKS = 2
"""One after another that must show everything still, in an order of chance each."""


class Thread(NamedTuple):
    pid: int
    tid: int


class ThreadStates(NamedTuple):
    """At all threads of a tree of processes."""

    awake: frozenset[int]
    """Processes of which a thread is not still."""
    used: dict[Thread, str]
    """What the kernel says of the time that each thread has had on a core."""


class Stopped:
    """The processes below `root`, stopped until `resume`."""

    def __init__(self, root: int) -> None:
        self._root = root
        self.restless: tuple[int, ...] = ()
        """Processes that could not be stopped."""
        self._used: dict[Thread, str] = {}

    def stop(self) -> None:
        give_up = time.monotonic() + LIMIT_S
        still, known = 0, frozenset[int]()
        while still < LOOKS:
            tree = descendants(self._root)
            for pid in tree:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGSTOP)
            look = look_at(tree)
            still = still + 1 if not look.awake and frozenset(tree) == known else 0
            known = frozenset(tree)
            if time.monotonic() > give_up:
                self.restless = tuple(sorted(look.awake))
                break
            if look.awake:
                time.sleep(0.0005)
        self._used = look_at(sorted(known)).used

    def moved(self) -> list[int]:
        """Processes that have run since they were stopped, or that were not there then."""
        now = look_at(descendants(self._root))
        return sorted(now.awake | {thread.pid for thread in now.used if now.used[thread] != self._used.get(thread)})

    def resume(self) -> None:
        """Parents last: a shell that sees its child stopped and going on again has nothing to decide in between."""
        for pid in reversed(descendants(self._root)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def stopped(root: int) -> Iterator[Stopped]:
    tree = Stopped(root)
    try:
        tree.stop()
        yield tree
    finally:
        tree.resume()


def descendants(root: int) -> list[int]:
    """Parents before their children."""
    children = _children if Path("/proc/thread-self/children").exists() else _children_by_parent().get
    found, unseen = [], [root]
    while unseen:
        below = children(unseen.pop()) or []
        found += below
        unseen += below
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in _tasks(pid):
        with contextlib.suppress(OSError):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def _children_by_parent() -> dict[int, list[int]]:
    """For a kernel without lists of children: from every process of the machine."""
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int(Path(f"/proc/{int(name)}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            found.setdefault(parent, []).append(int(name))
    return found


def look_at(pids: list[int]) -> ThreadStates:
    awake, used = set(), {}
    for pid in random.sample(pids, len(pids)):
        for task in _tasks(pid):
            folder = f"/proc/{pid}/task/{task}"
            with contextlib.suppress(OSError, IndexError):
                # The name in brackets is the process's own choice.
                words = Path(f"{folder}/stat").read_text(errors="replace").rpartition(")")[2].split()
                if words[0] not in STILL:
                    awake.add(pid)
                used[Thread(pid, task)] = _on_a_core(folder) or " ".join(words[11:13])
    return ThreadStates(frozenset(awake), used)


def _on_a_core(folder: str) -> str:
    """Nanoseconds; empty where the kernel does not count them, and ticks must do."""
    with contextlib.suppress(OSError):
        return Path(f"{folder}/schedstat").read_text().split()[0]
    return ""


def _tasks(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208 - hundreds of them
    return []
