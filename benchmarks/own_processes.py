"""Processes that a program of ours starts: their end with its own, and lines of their pipes with a limit on waiting."""

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pkb.types.processes import die_with_parent


def start(command: list[str], environment: Mapping[str, str], **streams: Any) -> "subprocess.Popen[bytes]":
    """One that does not outlive this process."""
    return subprocess.Popen(command, env=environment, preexec_fn=partial(die_with_parent, os.getpid()), **streams)


@contextlib.contextmanager
def all_ended(processes: "list[subprocess.Popen[bytes]]") -> Iterator[None]:
    """However the block ends: whoever waits for a peer on a GPU would go on for ever."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait(timeout=20)


class Lines:
    """Lines of a pipe with a limit on waiting. (A buffered reader would hold lines back that `select` cannot see.)"""

    def __init__(self, file: int) -> None:
        self._file, self._rest = file, b""

    def next(self, *, timeout_s: float) -> bytes | None:
        """The next line with its end of line; empty at the end of the pipe, None if the time is over."""
        give_up = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            if not select.select([self._file], [], [], max(0.0, give_up - time.monotonic()))[0]:
                return None
            data = os.read(self._file, 1 << 16)
            if not data:
                return b""
            self._rest += data
        line, end, self._rest = self._rest.partition(b"\n")
        return line + end
