"""The processes of one side, or of a build, as the kernel's tables show them from outside."""

import psutil

BESIDE_RANKS = 2
"""Below the warden: the process that enters the namespaces, and the init."""


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def parent(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.Error:
        return 0


def has_helpers(warden: int, ranks: int) -> bool:
    """Whether ranks have running child processes: usually compilers."""
    return len(descendants(warden)) > ranks + BESIDE_RANKS
