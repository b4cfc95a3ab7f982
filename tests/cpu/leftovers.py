"""What a judge could leave behind: processes of its sides, folders, shared memory, descriptors."""

import contextlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import psutil


def processes_of(judge_pid: int) -> list[psutil.Process]:
    """Wardens and all they forked (a forked process keeps the environment), of this judge only."""
    folder = re.compile(rf"pkb-(oracle|candidate)-{judge_pid}-[^/]+")
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if folder.fullmatch(Path(process.environ().get("HOME", "")).name):
                found.append(process)
    return found


def templates_of(judge_pid: int) -> list[psutil.Process]:
    """Processes that wardens are forked from; they stay as long as their judge."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            if (
                "pkb.rank.template" in command
                and command[-2] == str(judge_pid)
                and process not in processes_of(judge_pid)
            ):
                found.append(process)
    return found


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def descriptors() -> dict[str, str]:
    """Open descriptors of this process, without that of the listing itself."""
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            found[name] = str(Path("/proc/self/fd", name).readlink())
    return {name: target for name, target in found.items() if "/proc/" not in target}


def until(condition: Callable[[], bool], *, within_s: float) -> bool:
    give_up = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.05)
    return True
