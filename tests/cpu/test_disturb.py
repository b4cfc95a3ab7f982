"""Ranks made late from outside: each is held up, what it started as well, and all go on afterwards."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from pkb.judge.crew.disturb import stopped_by_turns


@contextlib.contextmanager
def waiting() -> Iterator[tuple[int, int]]:
    """A process that waits to be killed, and a child of it."""
    read_end, write_end = os.pipe()
    outer = os.fork()
    if outer == 0:
        inner = os.fork()
        if inner:
            os.write(write_end, str(inner).encode())
        signal.pause()
        os._exit(0)
    inner = int(os.read(read_end, 32))
    try:
        yield outer, inner
    finally:
        for pid in (inner, outer):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(outer, 0)
        os.close(read_end)
        os.close(write_end)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


def test_each_is_stopped_with_what_it_started_and_goes_on() -> None:
    with waiting() as first, waiting() as second:
        everybody = (*first, *second)
        seen: set[int] = set()
        with stopped_by_turns([first[0], second[0]], random.Random(1)):
            give_up = time.monotonic() + 20
            while len(seen) < len(everybody) and time.monotonic() < give_up:
                seen |= {pid for pid in everybody if is_stopped(pid)}
        assert seen == set(everybody)
        assert not [pid for pid in everybody if is_stopped(pid)]


def test_who_has_ended_is_passed_over() -> None:
    gone = os.fork()
    if gone == 0:
        os._exit(0)
    os.waitpid(gone, 0)
    with stopped_by_turns([gone], random.Random(1)):
        time.sleep(0.05)
    with stopped_by_turns([], random.Random(1)):
        pass
