"""Linux system calls that Python's standard library lacks, through ctypes, for x86_64 and aarch64.

A rank may load nothing but torch and the standard library, so there is no libseccomp and no bubblewrap here. Every call
raises `OSError` on failure with the name of what was tried: whoever calls decides whether a missing layer matters.
"""

import ctypes
import os
import platform
from pathlib import Path
from typing import NamedTuple

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long


class Numbers(NamedTuple):
    """System call numbers that differ between the two architectures and are issued by us."""

    capget: int
    capset: int
    seccomp: int


_NUMBERS = {"x86_64": Numbers(125, 126, 317), "aarch64": Numbers(90, 91, 277)}

# The same on every architecture, since all system calls after 423 share their numbers.
MOUNT_SETATTR = 442
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446

PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_SECUREBITS = 23, 24, 28
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4


def machine() -> str:
    """This process's architecture, `x86_64` or `aarch64`; anything else has no filter and no numbers here."""
    return platform.machine()


def numbers() -> Numbers:
    """The numbers of this architecture; `OSError` where it is neither of the two we know."""
    if machine() not in _NUMBERS:
        raise OSError(0, f"no system call numbers for {machine()}")
    return _NUMBERS[machine()]


def _check(result: int, what: str) -> int:
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def syscall(number: int, *arguments: object, what: str) -> int:
    """Issues system call `number`; integers travel as 64 bits, since C's varargs would take them as 32."""
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _check(_LIBC.syscall(ctypes.c_long(number), *wide), what)


def prctl(option: int, *arguments: int, what: str) -> int:
    """prctl(2), with the unused arguments zero as the kernel demands."""
    padded = (*arguments, 0, 0, 0, 0)[:4]
    return _check(_LIBC.prctl(ctypes.c_int(option), *(ctypes.c_ulong(value) for value in padded)), what)


def unshare(flags: int, *, what: str) -> None:
    """unshare(2)."""
    _check(_LIBC.unshare(ctypes.c_int(flags)), what)


def mount(source: str, target: str, *, kind: str | None, flags: int, data: str = "") -> None:
    """mount(2)."""
    _check(
        _LIBC.mount(
            source.encode(),
            os.fsencode(target),
            None if kind is None else kind.encode(),
            ctypes.c_ulong(flags),
            data.encode() if data else None,
        ),
        f"mount {kind or 'flags'} on {target}",
    )


def thread_count() -> int:
    """How many threads this process has. Importing torch alone may start one (the BLAS behind NumPy)."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())
