"""A lock on a file with a bounded wait. The kernel drops it when its holder dies, however it dies: none is ever left behind."""

import fcntl
import time
from collections.abc import Callable


def lock(file: int, *, wait_s: float, poll_s: float = 0.02, while_waiting: Callable[[], None] = lambda: None) -> None:
    """Takes the lock of an open file, which closing the file gives back; TimeoutError if another process keeps it."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"locked by another process for {wait_s:.0f} s") from None
            while_waiting()
            time.sleep(poll_s)
