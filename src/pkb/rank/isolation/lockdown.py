"""Locking a rank down just before it loads the candidate: from here on it reaches its own data and the GPU.

The layers back each other up, and each is tried by itself since a machine may lack any of them:

- no_new_privs: nothing that is run gains rights.
- capabilities dropped: root becomes an ordinary user.
- Landlock: files by path, no look into a peer's memory or descriptors, no signal to the warden or a peer.
- seccomp: EPERM for tracing, mounting, new namespaces and the kernel's back doors.
- limits on file size, open files and core dumps.

Landlock and capabilities bind the **calling thread** and what it starts later. Call this while the process has one
thread: right after the fork, before CUDA, process groups or the first parallel torch operation; else the report says
how many threads are outside, and candidate code that runs on them (an OpenMP pool) is not held.

What goes on working: CUDA, MPS, NCCL, gloo over loopback, symmetric memory over descriptors sent through unix
sockets, shared memory that was mapped before, `gcc` and `nvcc` writing to a writable folder, the profiler. Caches
must lie in a writable folder: set TMPDIR, TRITON_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR, CUDA_CACHE_PATH,
TORCH_EXTENSIONS_DIR. A root without capabilities also obeys file modes: readable files must be readable for root as
their owner, or for all.
"""

import resource
from collections.abc import Callable, Sequence
from pathlib import Path

from pkb.rank.isolation import capabilities, landlock, reach, seccomp
from pkb.rank.isolation import syscalls as kernel

_OPEN_FILES = 65536


def lock_down(
    *,
    readable: Sequence[Path],
    writable: Sequence[Path],
    forbidden: Sequence[Path] = (),
    max_file_bytes: int | None = None,
    devices: bool = True,
) -> dict[str, str]:
    """Gives up, for good, all that a candidate does not need. Returns each layer with `on...` or `off: why`.

    `readable`: usually `reach.default_readable()` and the candidate's own folder. `writable`: everything below may be
    made, changed and removed. `forbidden`: taken out of the readable trees, except for a readable path named inside
    one. `max_file_bytes` also bounds shared memory and memfd, so it must exceed the largest symmetric buffer on the
    CPU. `devices`: adds /dev/null, /dev/shm, GPUs and their like to the writable paths.
    """
    wanted = [path.resolve() for path in writable]
    for wall in (path.resolve() for path in forbidden):
        if broken := [path for path in wanted if wall.is_relative_to(path)]:
            raise ValueError(f"forbidden {wall} lies in writable {broken[0]}")
    readable_now, listable = reach.narrow(readable, forbidden)
    if devices:
        wanted += reach.device_nodes()
        listable.append(Path("/dev"))

    others = kernel.thread_count() - 1
    report = {"threads": "on: one" if others == 0 else f"off: {others} threads started before are not held"}
    report["limits"] = _limit_resources(max_file_bytes)
    report["capabilities stay away"] = _attempt(capabilities.close_the_ways_back)
    report["no_new_privs"] = _attempt(_no_new_privs)
    try:
        report |= landlock.restrict(readable=readable_now, listable=listable, writable=wanted)
    except OSError as error:
        why = f"off: {error.strerror or error}; needs Linux 5.13 with landlock among the kernel's lsm="
        report |= dict.fromkeys(("files", "signals"), why)
        # Undumpable keeps peers of the same user out of /proc/PID/mem; only here, since it also hides a rank from
        # itself.
        report["peers' memory"] = _attempt(_undumpable)
    report["capabilities"] = _attempt(capabilities.drop)
    report["system calls"] = _attempt(seccomp.install)
    return report


def _attempt(step: Callable[[], str]) -> str:
    try:
        return step()
    except OSError as error:
        return f"off: {error.strerror or error}"


def _no_new_privs() -> str:
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, what="no_new_privs")
    return "on"


def _undumpable() -> str:
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0, what="undumpable")
    return "on: undumpable, in place of Landlock"


def _limit_resources(max_file_bytes: int | None) -> str:
    _, hard_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _OPEN_FILES if hard_files == resource.RLIM_INFINITY else min(hard_files, _OPEN_FILES)
    # One byte, not zero: where dumps go to a program, zero still sends gigabytes there, and only one means none.
    limits = [(resource.RLIMIT_CORE, 1), (resource.RLIMIT_NOFILE, files)]
    if max_file_bytes is not None:
        limits.append((resource.RLIMIT_FSIZE, max_file_bytes))
    for kind, value in limits:
        _, hard = resource.getrlimit(kind)
        bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bounded, bounded))
    return "on" if max_file_bytes is not None else "on, but files of any size"
