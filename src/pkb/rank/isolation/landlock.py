"""Landlock: file access by path, ptrace and signals bounded for this process and its children, without privileges.

Two facts of the kernel carry our rule that a rank cannot reach a peer's arguments: a process inside a Landlock domain
may trace (and so read /proc/PID/mem, /proc/PID/fd, process_vm_readv, pidfd_getfd) only processes of the same domain
or below, and two processes that each called `restrict` are in different domains. Every rank must call it itself,
after its fork.
"""

import ctypes
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from pkb.rank.isolation import syscalls as kernel

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_FIRST_VERSION = (1 << 13) - 1  # the rights of version 1
_REFER, _TRUNCATE = 1 << 13, 1 << 14  # versions 2 and 3
# Version 5's IOCTL_DEV is left unhandled, hence allowed: a GPU is driven by ioctl. Version 4's TCP rights too: gloo and
# NCCL connect over loopback, and what is beyond it is the network namespace's matter.
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_SCOPE_SIGNAL = 1 << 1  # version 6; the other scope, abstract unix sockets, would cut NCCL's ranks from each other
_RULE_PATH_BENEATH, _CREATE_VERSION = 1, 1


# CUDA names its threads by writing /proc/self/task/N/comm, and gives up (error 304) where it cannot. Writing all of
# /proc is out of the question: root's number alone opens /proc/sys. The rule is tied to a cached entry of /proc; a
# descriptor stays open as a precaution: the kernel cannot drop that entry under memory pressure, and the rule with it.
_OWN_THREADS = Path("/proc/self/task")
_held_open: list[int] = []


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def version() -> int:
    """Landlock's version in the running kernel; `OSError` where it is not built in or not enabled."""
    number = kernel.LANDLOCK_CREATE_RULESET
    return kernel.syscall(number, None, 0, _CREATE_VERSION, what="Landlock")


def restrict(*, readable: Iterable[Path], listable: Iterable[Path], writable: Iterable[Path]) -> dict[str, str]:
    """Bounds this thread and its future children: `readable` to read and run, `listable` for names, `writable` for all.

    A path that does not exist is passed over. Needs no_new_privs set. Returns the report; raises `OSError` if nothing
    holds.
    """
    found = version()
    handled = _FIRST_VERSION | (_REFER if found >= 2 else 0) | (_TRUNCATE if found >= 3 else 0)
    signals = found >= 6
    attributes = _RulesetAttributes(handled, 0, _SCOPE_SIGNAL if signals else 0)
    # Older kernels accept a longer structure as long as the fields that they do not know are zero.
    ruleset = kernel.syscall(
        kernel.LANDLOCK_CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0, what="Landlock ruleset"
    )
    count = 0
    try:
        for paths, rights in (
            (readable, _EXECUTE | _READ_FILE | _READ_DIR),
            (listable, _READ_DIR),
            (writable, handled),
            ((_OWN_THREADS,), _WRITE_FILE | _TRUNCATE),
        ):
            count += sum(_allow(ruleset, path, rights & handled) for path in paths)
        _held_open.append(os.open(_OWN_THREADS, os.O_PATH | os.O_CLOEXEC))
        kernel.syscall(kernel.LANDLOCK_RESTRICT_SELF, ruleset, 0, what="Landlock restriction")
    finally:
        os.close(ruleset)
    weak = "" if found >= 3 else "; truncation of any file stays possible before version 3"
    return {
        "files": f"on: Landlock {found}, {count} paths{weak}",
        "peers' memory": "on: Landlock",
        "signals": "on" if signals else f"off: needs Landlock 6 (Linux 6.12), here {found}",
    }


def _allow(ruleset: int, path: Path, rights: int) -> bool:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_RIGHTS
        if rights == 0:
            return False
        rule = _PathBeneath(rights, descriptor)
        kernel.syscall(
            kernel.LANDLOCK_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0, what=f"Landlock rule {path}"
        )
    finally:
        os.close(descriptor)
    return True
