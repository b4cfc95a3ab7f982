"""A world of oracle ranks that outlives a failing case: for work on many problems that judges no candidate."""

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from pkb.judge.crew.crew import Crew
from pkb.judge.crew.failure import CrewFailure, CrewSpec
from pkb.judge.crew.limits import UNLIMITED, Limits
from pkb.platforms.base import Platform
from pkb.platforms.device_lock import devices_of, hold
from pkb.platforms.registry import create
from pkb.platforms.short_folder import check_temporary_folder
from pkb.problems.layouts import groups
from pkb.types.protocol.commands import Command, Open
from pkb.types.protocol.replies import Reply
from pkb.types.protocol.settings import OracleOptions

R = TypeVar("R", bound=Reply)
OPEN_LIMIT_S = 120.0


@contextlib.contextmanager
def running(platform: str, ranks: int, *, say: Callable[[str], None] = lambda text: None) -> Iterator[Platform]:
    """The platform, started, with its GPUs reserved for us."""
    check_temporary_folder()
    with hold(devices_of(platform, ranks), say=say):
        place = create(platform)
        try:
            place.start()
            yield place
        finally:
            place.stop()


class OracleWorld:
    """Started at the first question and once more after each failure: ranks that were left in the middle of a collective
    cannot be used again, and one bad case must not cost the others their result."""

    def __init__(self, platform: Platform, world_size: int, *, problems_folder: Path | None = None) -> None:
        self.world_size = world_size
        self._platform = platform
        self._folder = str(problems_folder.resolve()) if problems_folder else None
        self._crew: Crew | None = None
        self._opened: set[str] = set()

    def __enter__(self) -> "OracleWorld":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        crew, self._crew = self._crew, None
        self._opened.clear()
        if crew is not None:
            crew.kill()

    def ask(self, layout: str, command: Command[R], *, timeout_s: float) -> dict[int, R]:
        """One question to all ranks, for a problem of this layout; its groups are made once."""
        try:
            crew = self._started()
            if layout not in self._opened:
                crew.ask(Open.of(layout, groups(layout, self.world_size)), timeout_s=OPEN_LIMIT_S)
                self._opened.add(layout)
            return crew.ask(command, timeout_s=timeout_s)
        except CrewFailure:
            self.close()
            raise

    def _started(self) -> Crew:
        """Tried again after a pause: the memory that killed ranks held on a GPU is free a moment after they are gone."""
        for pause_s in (1.0, 4.0, 0.0):
            if self._crew is not None:
                break
            try:
                self._start()
            except CrewFailure:
                self.close()
                if not pause_s:
                    raise
                time.sleep(pause_s)
        assert self._crew is not None
        return self._crew

    def _start(self) -> None:
        spec = CrewSpec(OracleOptions(secrets.token_hex(32), self._folder), self.world_size)
        self._crew = Crew(spec, self._platform, Limits(memory_bytes=UNLIMITED))
        self._crew.launch()
        self._crew.await_ready()


def failure_words(failure: CrewFailure) -> str:
    """One line: which rank, what happened, and the last line of our code that it passed."""
    trace = failure.trace.strip().splitlines()
    kind = failure.error.type if failure.error else failure.kind
    where = f" ({trace[-2].strip()})" if len(trace) > 1 else ""
    return " ".join(f"{kind} on ranks {failure.ranks}: {failure.detail}{where}".split())[:600]
