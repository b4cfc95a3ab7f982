"""Asks stuck ranks for their Python stacks and reads the frames that a person can act on, innermost first."""

import contextlib
import os
import re
import signal
import time
from collections.abc import Mapping

FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$')
MOST_FRAMES = 8
MOST_BYTES = 64 * 1024
ANSWER_S = 5.0
"""For a rank that is stopped, or deaf to the signal. Others answer in milliseconds, on a busy machine in a second or two."""


class Stacks:
    """One file in memory for each rank, into which the rank dumps its stack on a signal."""

    def __init__(self, size: int) -> None:
        self.files = tuple(os.memfd_create(f"pkb-stack-{rank}") for rank in range(size))
        self._asked_at = [0] * size
        """Where each rank's answer to the last question begins."""

    def ask(self, pids: Mapping[int, int]) -> None:
        """Signals these ranks and waits for whole dumps: one that has only begun shows no frame, or too few."""
        for rank, pid in pids.items():
            self._asked_at[rank] = os.fstat(self.files[rank]).st_size
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGUSR1)
        give_up = time.monotonic() + ANSWER_S
        while time.monotonic() < give_up and not all(is_whole(self._dump(rank)) for rank in pids):
            time.sleep(0.01)

    def frames(self, rank: int) -> tuple[str, ...]:
        return tuple(candidate_frames(self._dump(rank)))

    def _dump(self, rank: int) -> str:
        size = os.fstat(self.files[rank]).st_size
        start = max(self._asked_at[rank], size - MOST_BYTES)
        return os.pread(self.files[rank], MOST_BYTES, start).decode(errors="replace")

    def close(self) -> None:
        for fd in self.files:
            with contextlib.suppress(OSError):
                os.close(fd)


def is_whole(dump: str) -> bool:
    """The main thread comes last, and its outermost frame is that of `python -m`; dots stand for what is beyond Python's
    limits. By its last line alone: a rank may have written anything, and 64 KiB of ends of lines kept a pattern busy for
    12 s."""
    if not dump.endswith("\n"):
        return False
    last = dump.rstrip("\n").rpartition("\n")[2]
    return last.endswith("in _run_module_as_main") or last.strip() == "..."


def candidate_frames(dump: str) -> list[str]:
    """Frames of the main thread of the last dump, without the harness's own."""
    blocks = re.split(r"(?m)^(?=(?:Current t|T)hread 0x)", dump)
    main = next(
        (block for block in reversed(blocks) if block.startswith("Current thread")), blocks[-1] if blocks else ""
    )
    frames = [found for line in main.splitlines() if (found := FRAME.match(line))]
    theirs = [
        frame for frame in frames if "/pkb/rank/" not in frame["file"] and not frame["file"].startswith("<frozen")
    ]
    return [
        f"{frame['file'].rsplit('/', 1)[-1]}:{frame['line']} in {frame['function']}" for frame in theirs[:MOST_FRAMES]
    ]
