"""What ranks need of the machine only to start is taken from them before the candidate is loaded.

A rank on a shared GPU meets its MPS server through the daemon's socket, over which anybody can list and end servers, and
through files in the machine's /dev/shm. With its CUDA context made it holds open all it needs of either. So ranks stop at the
gate when they have started, and their init, which alone may still mount, covers both for all of them and whatever they fork.
"""

import contextlib
import functools
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from pkb.rank.isolation.namespaces import attempt, bind, cover

OWN_SHM = "shm"
"""In the side's own folder. Landlock goes by what is mounted, not by where: a rank must allow itself this folder as well."""
_RECORD_BYTES = 256


class Gate:
    """Made in the init before it forks the ranks."""

    def __init__(self) -> None:
        self._arrivals, self._arrive = os.pipe()
        self._answers, self._answer = os.pipe()

    def wait(self) -> dict[str, str]:
        """In a rank, once: until all have started and the init has done its part; what that was, for the report."""
        for end in (self._arrivals, self._answer):
            os.close(end)
        os.write(self._arrive, b".")
        os.close(self._arrive)
        record = os.read(self._answers, _RECORD_BYTES)
        os.close(self._answers)
        if not record:
            raise RuntimeError("another rank has ended while this one started")
        report: dict[str, str] = json.loads(record)
        return report

    def release(self, ranks: int, take_away: Callable[[], dict[str, str]]) -> None:
        """In the init. If a rank ends before it is here, the others learn just that."""
        for end in (self._arrive, self._answers):
            os.close(end)
        arrived = 0
        while part := os.read(self._arrivals, ranks):
            arrived += len(part)
        if arrived == ranks:
            # Records of one length, so that each rank reads one of them.
            record = json.dumps(take_away()).encode().ljust(_RECORD_BYTES)
            with contextlib.suppress(BrokenPipeError):
                os.write(self._answer, record * ranks)
        for end in (self._arrivals, self._answer):
            os.close(end)


def take_away(services: Sequence[Path], own_shm: Path | None, *, private_mounts: bool) -> dict[str, str]:
    """Cover the folders of services; make a folder of the side's own its /dev/shm. The report of both.

    `private_mounts`: nobody outside of the side sees what is mounted. Otherwise nothing is.
    """
    report: dict[str, str] = {}
    for path in services:
        answer = _mounted(functools.partial(cover, path), private_mounts)
        report["services"] = answer if report.get("services", "on") == "on" else report["services"]
    if own_shm is not None:
        answer = _mounted(functools.partial(bind, own_shm, Path("/dev/shm")), private_mounts)
        report["shm"] = "on: its own, once its ranks have started" if answer == "on" else answer
    return report


def _mounted(step: Callable[[], None], private_mounts: bool) -> str:
    return attempt(step)[:80] if private_mounts else "off: needs a mount namespace"
