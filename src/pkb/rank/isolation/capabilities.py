"""Dropping every capability: root in a rank is then an ordinary user who happens to be called root.

Without it root could mount, kill the warden, trace it or load a module. What root's number still opens by ownership
(/dev/sda, a container engine's socket) is for Landlock and the mount namespace to close.
"""

import ctypes
import errno
from typing import NamedTuple

from pkb.rank.isolation import syscalls as kernel

_VERSION_3 = 0x20080522
# NOROOT (running a program as root gives nothing), NO_SETUID_FIXUP, KEEP_CAPS locked off, NO_CAP_AMBIENT_RAISE: all
# locked.
_SECUREBITS = 0b11101111


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


class Held(NamedTuple):
    """The capability sets of the calling thread, as bit masks."""

    effective: int
    permitted: int
    inheritable: int


def held() -> Held:
    """What this thread may do now."""
    data = (_Data * 2)()
    kernel.syscall(kernel.numbers().capget, ctypes.byref(_Header(_VERSION_3, 0)), data, what="capget")
    return Held(*(getattr(data[0], name) | getattr(data[1], name) << 32 for name in Held._fields))


def close_the_ways_back() -> str:
    """Empties the bounding and ambient sets and locks the secure bits: no program that is run brings anything back.

    Needs a capability itself, so it comes before `drop`; an unprivileged process has nothing to lose here and fails.
    """
    kernel.prctl(kernel.PR_CAP_AMBIENT, kernel.PR_CAP_AMBIENT_CLEAR_ALL, what="ambient capabilities")
    try:
        for capability in range(64):
            if kernel.prctl(kernel.PR_CAPBSET_READ, capability, what="bounding set") == 1:
                kernel.prctl(kernel.PR_CAPBSET_DROP, capability, what="bounding set")
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: past the last capability that this kernel knows
            raise
    kernel.prctl(kernel.PR_SET_SECUREBITS, _SECUREBITS, what="secure bits")
    return "on"


def drop() -> str:
    """Empties this thread's effective, permitted and inheritable sets; returns the report's words."""
    kernel.syscall(kernel.numbers().capset, ctypes.byref(_Header(_VERSION_3, 0)), (_Data * 2)(), what="capset")
    if any(held()):
        raise OSError(errno.EPERM, "capabilities remain")
    return "on: none left"
