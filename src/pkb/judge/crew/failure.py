"""What a side is started with, and what it means that it did not answer."""

import signal
from dataclasses import dataclass, field
from enum import StrEnum

from pkb.types.failure import Cause
from pkb.types.protocol.replies import ErrorReport
from pkb.types.protocol.settings import CandidateOptions, OracleOptions
from pkb.types.verdict import RankState


@dataclass(frozen=True)
class CrewSpec:
    options: OracleOptions | CandidateOptions
    world_size: int
    preload_triton: bool = False
    timed: bool = True
    """Whether what its calls take matters."""
    extra_environment: dict[str, str] = field(default_factory=dict)

    @property
    def role(self) -> str:
        return self.options.role


class CrewFailureKind(StrEnum):
    RAISED = "error"
    """A rank raised an exception and said so."""
    GONE = "gone"
    """A rank's process ended."""
    TIMEOUT = "timeout"
    LIMIT = "limit"
    """A resource limit."""
    GARBAGE = "garbage"
    """A rank sent what is no answer."""


class CrewFailure(Exception):
    """A side did not answer as it should."""

    def __init__(
        self,
        kind: CrewFailureKind,
        ranks: list[int],
        detail: str,
        *,
        role: str,
        rank: int | None = None,
        error: ErrorReport | None = None,
        limit: str = "",
        states: tuple[RankState, ...] = (),
        left: bool = False,
    ) -> None:
        super().__init__(f"{kind} on ranks {ranks}: {detail}")
        self.kind, self.ranks, self.detail = kind, ranks, detail
        self.role = role
        """`oracle` or `candidate`: the side that failed."""
        self.rank = rank if rank is not None else next(iter(ranks), 0)
        """The first that failed, where that is known."""
        self.error = error
        """What it raised."""
        self.limit = limit
        """Name of the resource that was exceeded."""
        self.states = states
        self.left = left or (error is not None and error.cause is Cause.EXIT)
        """A rank has called exit."""

    @property
    def trace(self) -> str:
        return self.error.trace if self.error else ""


EMULATOR_FAULT = 134
"""The status of a rank whose emulated GPU has found a fault and cannot say so."""


def has_left(exits: dict[int, int | None]) -> bool:
    return any(status is not None and status >= 0 and status != EMULATOR_FAULT for status in exits.values())


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def exit_words(exits: dict[int, int | None]) -> str:
    words = []
    for rank, status in exits.items():
        if status is None:
            words.append(f"rank {rank} closed its channel")
        elif status < 0:
            words.append(f"rank {rank} was ended by {_signal_name(-status)}")
        else:
            words.append(f"rank {rank} left with status {status}")
    return "; ".join(words)
