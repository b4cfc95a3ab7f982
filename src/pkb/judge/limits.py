"""What a candidate's side may use, and whether it uses more."""

import contextlib
from dataclasses import dataclass
from typing import NamedTuple

import psutil


@dataclass(frozen=True)
class Limits:
    memory_bytes: int
    processes: int = 1500
    shm_bytes: int = 8 << 30
    tmp_bytes: int = 16 << 30
    file_bytes: int = 16 << 30


class BrokenLimit(NamedTuple):
    name: str
    words: str


def broken_limit(family: list[psutil.Process], limits: Limits) -> BrokenLimit | None:
    """The first limit that these processes exceed together. Memory they share is bounded by the size of their tmpfs."""
    if len(family) > limits.processes:
        return BrokenLimit("process", f"{len(family)} processes, {limits.processes} allowed")
    used = 0
    for process in family:
        with contextlib.suppress(psutil.Error):
            memory = process.memory_info()
            used += max(0, memory.rss - memory.shared)
    if used > limits.memory_bytes:
        words = f"{used / 2**30:.1f} GiB of memory, {limits.memory_bytes / 2**30:.1f} GiB allowed"
        return BrokenLimit("memory", words)
    return None
