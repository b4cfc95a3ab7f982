"""What a process and its children have to do with one another."""

import contextlib
import ctypes
import os
import re
import select
import signal as signals
import threading
from collections.abc import Iterable, Iterator, Mapping

# Wider than what is refused elsewhere: a variable too many costs nothing here.
_WITHHELD = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)$", re.IGNORECASE)
_PR_SET_PDEATHSIG = 1


def die_with_parent(
    expected_ppid: int | None = None, *, parent_pidfd: int | None = None, signal: int = signals.SIGKILL
) -> None:
    """Has the kernel kill this process when its parent (strictly: the parent's thread that forked it) ends.

    A parent that ended before the call would never be noticed, so say who it was: by number, or, in the inner init
    whose parent's number reads 0, by a descriptor from `os.pidfd_open(os.getpid())` that the parent opened before
    forking. Entering a user namespace clears the setting: call this afterwards. It does not pass on to children.
    """
    unused = (ctypes.c_ulong(0),) * 3
    if ctypes.CDLL(None, use_errno=True).prctl(ctypes.c_int(_PR_SET_PDEATHSIG), ctypes.c_ulong(signal), *unused):
        number = ctypes.get_errno()
        raise OSError(number, f"die with parent: {os.strerror(number)}")
    gone = expected_ppid is not None and os.getppid() != expected_ppid
    if parent_pidfd is not None:
        gone = gone or bool(select.select([parent_pidfd], [], [], 0)[0])
    if gone:
        os.kill(os.getpid(), signal)
        os._exit(128 + signal)  # process 1 of a namespace is immune to its own signals


def cores_to_spare(ranks: int) -> bool:
    """Whether so many ranks and the judge may each keep a core of this process's at work, and leave others one."""
    return len(os.sched_getaffinity(0)) > ranks + 1


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """For a process that runs candidates: none runs below one that has a provider's key in its environment."""
    return {name: value for name, value in environment.items() if not _WITHHELD.search(name)}


def inherited(names: Iterable[str]) -> dict[str, str]:
    """Those variables of this process, for a child that starts in another folder: `PYTHONPATH=src` finds the same there."""
    found = {name: os.environ[name] for name in names if name in os.environ}
    if "PYTHONPATH" in found:  # an empty entry is nobody's wish
        entries = filter(None, found["PYTHONPATH"].split(os.pathsep))
        found["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, entries))
    return found


@contextlib.contextmanager
def interrupt_later() -> Iterator[None]:
    """Ctrl-C or SIGTERM inside the block takes effect behind it. Only the main thread is ever interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {
        number: signals.signal(number, lambda number, frame: came.append(number))
        for number in (signals.SIGINT, signals.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signals.signal(number, handler)
        if came:  # whatever was raised inside: who was told to end does
            signals.raise_signal(came[0])
