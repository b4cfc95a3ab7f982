"""Makes ranks late from outside: whole processes are stopped for milliseconds, by turns, while a batch runs.

A rank also delays itself when it is told to, at the places where most races hide, but that code is in reach of the candidate.
"""

import contextlib
import os
import random
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

RUNNING_S = (0.001, 0.004)
STOPPED_S = (0.003, 0.012)


@contextlib.contextmanager
def stopped_by_turns(ranks: Sequence[int], source: random.Random) -> Iterator[None]:
    """`ranks`: process ids; what a rank has started stops with it."""
    if not ranks:
        yield
        return
    with contextlib.ExitStack() as stack:
        families = [[_open(stack, pid) for pid in _family(rank)] for rank in ranks]
        over = threading.Event()
        turns = threading.Thread(target=_take_turns, args=(families, source, over), daemon=True)
        turns.start()
        try:
            yield
        finally:
            over.set()
            turns.join()


def _take_turns(families: list[list[int]], source: random.Random, over: threading.Event) -> None:
    while not over.wait(source.uniform(*RUNNING_S)):
        family = source.choice(families)
        _signal(family, signal.SIGSTOP)
        over.wait(source.uniform(*STOPPED_S))
        _signal(family, signal.SIGCONT)


def _family(pid: int) -> list[int]:
    """The process and what it has started, in microseconds; a rank that hides children under another parent keeps them."""
    found = [pid]
    with contextlib.suppress(OSError):
        for listing in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in listing.read_text().split():
                found += _family(int(child))
    return found


def _open(stack: contextlib.ExitStack, pid: int) -> int:
    """By a descriptor, so that no other process that gets its number meanwhile is stopped; -1 if it has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return -1
    stack.callback(os.close, descriptor)
    return descriptor


def _signal(family: list[int], number: int) -> None:
    for descriptor in family:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(descriptor, number)
