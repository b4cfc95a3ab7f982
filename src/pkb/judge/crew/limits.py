"""What a candidate's side may use, and whether it uses more."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

UNLIMITED = 1 << 62
COUNTED = 64


@dataclass(frozen=True)
class Limits:
    memory_bytes: int
    processes: int = 400
    """Eight ranks and their compilers are far fewer; a candidate that multiplies is stopped before it slows the judge."""
    threads: int = 3000
    shm_bytes: int = 8 << 30
    tmp_bytes: int = 16 << 30
    file_bytes: int = 16 << 30


class BrokenLimit(NamedTuple):
    name: str
    words: str


def broken_limit(family: list[psutil.Process], limits: Limits, *, mounts: Sequence[Path] = ()) -> BrokenLimit | None:
    """The first limit that these processes exceed together, files in the file systems they keep in memory included."""
    if len(family) > limits.processes:
        return BrokenLimit("process", f"{len(family)} processes, {limits.processes} allowed")
    if limits.memory_bytes >= UNLIMITED:
        return None
    # Reading what a process shares takes milliseconds, so only the first of them are asked: the ranks and their children.
    used = sum(_resident_bytes(process.pid) for process in family[:COUNTED])
    if family:
        used += sum(_mount_bytes(family[-1].pid, mount) for mount in mounts)
    if used > limits.memory_bytes:
        words = f"{used / 2**30:.1f} GiB of memory, {limits.memory_bytes / 2**30:.1f} GiB allowed"
        return BrokenLimit("memory", words)
    return None


def _resident_bytes(pid: int) -> int:
    """Proportional set size: a page that n processes share counts 1/n for each, so that all of them count it once."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _mount_bytes(pid: int, mount: Path) -> int:
    """What lies in a tmpfs of the side's own, seen through one of its processes."""
    with contextlib.suppress(OSError):
        facts = os.statvfs(f"/proc/{pid}/root{mount}")
        return (facts.f_blocks - facts.f_bfree) * facts.f_frsize
    return 0
