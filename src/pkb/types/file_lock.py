"""A lock on a file with a bounded wait. The kernel drops it when its holder dies, however it dies: none is ever left behind."""

import fcntl
import time

POLL_S = 0.02


def lock(file: int, *, wait_s: float) -> None:
    """Takes the lock of an open file, which closing the file gives back; TimeoutError if another process keeps it."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"locked by another process for {wait_s:.0f} s") from None
            time.sleep(POLL_S)
