"""Who works on a task, and whether he still lives."""

import hashlib
import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

# The kernel gives start times in ticks since boot, and its idea of when that was may move a little.
_SAME_START_S = 2.0


@dataclass(frozen=True)
class Worker:
    """A process: its id alone may be given to another one later, its start time as well tells them apart."""

    host: str
    """Name of the machine, with a mark for this boot and this view of process ids: a container's pid 7 is not ours."""
    pid: int
    started: float

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.started:.2f}"

    @staticmethod
    def here() -> "Worker":
        return Worker(_host(), os.getpid(), psutil.Process().create_time())

    @staticmethod
    def parse(text: str) -> "Worker":
        host, pid, started = text.rsplit(":", 2)
        return Worker(host, int(pid), float(started))

    def surely_gone(self) -> bool:
        """False for a worker that this process cannot see: then only the lease tells."""
        if self.host != _host():
            return False
        try:
            process = psutil.Process(self.pid)
            if process.status() == psutil.STATUS_ZOMBIE:  # killed, and nobody has collected it
                return True
            return abs(process.create_time() - self.started) > _SAME_START_S
        except psutil.NoSuchProcess:
            return True
        except psutil.AccessDenied:
            return False


@cache
def _host() -> str:
    marks = ""
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        try:
            marks += str(Path(path).readlink()) if "/ns/" in path else Path(path).read_text()
        except OSError:  # not Linux: the name alone must do
            continue
    name = socket.gethostname()
    return f"{name}-{hashlib.sha256(marks.encode()).hexdigest()[:8]}" if marks else name
