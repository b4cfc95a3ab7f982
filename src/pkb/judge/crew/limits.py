"""What a candidate's side may use, and whether it uses more."""

import contextlib
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

UNLIMITED = 1 << 62


@dataclass(frozen=True)
class Limits:
    memory_bytes: int
    processes: int = 400
    """Eight ranks and their compilers are far fewer; a candidate that multiplies is stopped before it slows the judge."""
    threads: int = 3000
    descriptors: int = 100_000
    """Of all processes together: each is looked at, since it may hold memory that is mapped nowhere."""
    sockets: int = 4000
    """Each may hold 200 KiB that are in nobody's account, and one of TCP 2 MiB, as far as the machine's tcp_mem allows. A rank
    has a few for each peer and process group, of gloo and of NCCL."""
    watches: int = 50_000
    """Of files by epoll. A user has some million for all programs: without one, none of them can wait for anything."""
    shm_bytes: int = 8 << 30
    tmp_bytes: int = 16 << 30
    file_bytes: int = 16 << 30


class BrokenLimit(NamedTuple):
    name: str
    words: str


class _Pages(NamedTuple):
    """Of one process, in bytes."""

    own: int
    shared: int
    """Pages of files in memory and of shared mappings, as far as they are mapped."""


class _Holdings(NamedTuple):
    """Of all processes together."""

    files: dict[int, int]
    """Bytes by inode, of anonymous files in memory."""
    sockets: int
    watches: int


def broken_limit(
    family: list[psutil.Process], limits: Limits, *, mounts: Sequence[Path] = (), written: Sequence[int] = ()
) -> BrokenLimit | None:
    """The first limit that these processes exceed together, all of them, with the files that they keep in memory.
    `written`: such files of ours that they may write to, and close."""
    if len(family) > limits.processes:
        return BrokenLimit("process", f"{len(family)} processes, {limits.processes} allowed")
    if limits.memory_bytes >= UNLIMITED:
        return None
    pids = [_living(process.pid) for process in family]
    held = _held(pids, most=limits.descriptors, most_watches=limits.watches)
    if held is None:
        return BrokenLimit("process", f"more than {limits.descriptors} open descriptors")
    if held.sockets > limits.sockets:
        return BrokenLimit("process", f"{held.sockets} open sockets, {limits.sockets} allowed")
    if held.watches > limits.watches:
        return BrokenLimit("process", f"more than {limits.watches} files watched by epoll")
    files = held.files
    files |= {facts.st_ino: facts.st_blocks * 512 for facts in map(os.fstat, written)}
    in_files = sum(files.values()) + sum(_mount_bytes(pids, mount) for mount in mounts)
    tables = sum(map(_table_bytes, pids))
    # Reading what a process shares takes milliseconds, and is left out where even twice counted pages are few enough.
    if sum(map(_resident_bytes, pids)) + in_files + tables <= limits.memory_bytes:
        return None
    pages = [_pages(pid) for pid in pids]
    # A page of a file is in both sums where it is mapped, and in one of them in any case.
    used = tables + sum(page.own for page in pages) + max(in_files, sum(page.shared for page in pages))
    if used > limits.memory_bytes:
        words = f"{used / 2**30:.1f} GiB of memory, {limits.memory_bytes / 2**30:.1f} GiB allowed"
        return BrokenLimit("memory", words)
    return None


def _living(pid: int) -> int:
    """A thread of this process that lives: one whose first thread has ended shows nothing of its own under its number."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        if Path(f"/proc/{pid}/statm").read_bytes().split()[0] == b"0":
            return max((int(name) for name in os.listdir(f"/proc/{pid}/task")), default=pid)  # noqa: PTH208
    return pid


def _resident_bytes(pid: int) -> int:
    """At least what `_pages` adds up to, and read in microseconds."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * mmap.PAGESIZE
    return 0


def _table_bytes(pid: int) -> int:
    """Of page tables, which no set size counts: a byte looked at in every 2 MiB of an empty mapping costs a page of them. The
    name of a process stands before them and may be anything in one line."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/status").read_bytes().partition(b"\nVmPTE:")[2].split(maxsplit=1)[0]) * 1024
    return 0


def _pages(pid: int) -> _Pages:
    """Proportional set size: a page that n processes share counts 1/n for each, so that all of them count it once."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        sizes = {line.split()[0]: int(line.split()[1]) * 1024 for line in lines[1:]}
        shared = sizes.get("Pss_Shmem:", 0)
        return _Pages(sizes["Pss:"] - shared, shared)
    return _Pages(0, 0)


def _held(pids: list[int], *, most: int, most_watches: int) -> _Holdings | None:
    """What these processes hold open, mapped or not; None for more than `most` descriptors. One that waits in a socket, in
    nobody's table, is not seen."""
    found: dict[int, int] = {}
    sockets: set[str] = set()
    count = watches = 0
    for pid in pids:
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                count += 1
                if count > most:
                    return None
                with contextlib.suppress(OSError):
                    target = os.readlink(entry.path)  # noqa: PTH115 - thousands of them
                    if target == "anon_inode:[eventpoll]" and watches <= most_watches:
                        watches += _watches(f"/proc/{pid}/fdinfo/{entry.name}", most_watches)
                    elif target.startswith("socket:"):
                        sockets.add(target)
                    elif target.startswith("/memfd:"):
                        facts = os.stat(entry.path)  # noqa: PTH116
                        found[facts.st_ino] = facts.st_blocks * 512
    return _Holdings(found, len(sockets), watches)


def _watches(description: str, most: int) -> int:
    """One line each, also of descriptors that were closed since: up to a little more than `most`."""
    found = 0
    with open(description, "rb") as lines:
        for line in lines:
            found += line.startswith(b"tfd:")
            if found > most:
                break
    return found


def _mount_bytes(pids: list[int], mount: Path) -> int:
    """What lies in a tmpfs of the side's own, seen through one of its processes."""
    for pid in reversed(pids):
        with contextlib.suppress(OSError):
            seen = Path(f"/proc/{pid}/root{mount}")
            if seen.stat().st_dev == mount.stat().st_dev:
                continue  # a process outside of the side's mounts: this is the machine's own
            facts = os.statvfs(seen)
            return (facts.f_blocks - facts.f_bfree) * facts.f_frsize
    return 0
