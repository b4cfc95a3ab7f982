"""What a side is started with, and what it means that it did not answer."""

import signal
from dataclasses import dataclass, field
from typing import Any

from pkb.types.verdict import RankState


@dataclass(frozen=True)
class CrewSpec:
    role: str
    world_size: int
    options: dict[str, Any] = field(default_factory=dict)
    isolate: bool = True
    preload_triton: bool = False
    extra_environment: dict[str, str] = field(default_factory=dict)


class CrewFailure(Exception):
    """A side did not answer as it should.

    kind: `error` (a rank raised), `gone` (a rank's process ended), `timeout`, `limit` (a resource limit), `garbage`.
    """

    def __init__(
        self,
        kind: str,
        ranks: list[int],
        detail: str,
        *,
        info: dict[str, Any] | None = None,
        states: tuple[RankState, ...] = (),
    ) -> None:
        super().__init__(f"{kind} on ranks {ranks}: {detail}")
        self.kind, self.ranks, self.detail = kind, ranks, detail
        self.role = ""
        """`oracle` or `candidate`: the side that failed."""
        self.info = info or {}
        self.states = states


def whole_number(claimed: object) -> int:
    """A reported number, or the largest there is: what a rank reports may be anything."""
    return claimed if type(claimed) is int else 1 << 62


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
