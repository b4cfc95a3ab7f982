"""What is asked of those who work for a sweep, and what they say back: plain data that crosses pipes and machines as JSON."""

import base64
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

EVALUATION_LIMIT_S = 3600.0
"""What one evaluation may take; the judge bounds every stage itself, so only a judge that hangs comes near it."""


@dataclass(frozen=True, kw_only=True)
class JudgeOrder:
    """Build or evaluate one candidate. `platform`, `size` and `dtype` may be `auto`."""

    id: str
    kind: Literal["build", "evaluate"]
    source: bytes
    filename: str
    problem: str
    platform: str
    ranks: int
    size: str
    dtype: str
    plan: str
    timing: bool = True
    problems_folder: str | None = None
    call_limit_s: float = 60.0
    build_limit_s: float = 600.0
    limit_s: float = EVALUATION_LIMIT_S
    cores: tuple[int, ...] = ()
    """Cores that it may use; empty means all."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"source": base64.b64encode(self.source).decode()}

    @staticmethod
    def of(document: dict[str, Any]) -> "JudgeOrder":
        told = {"source": base64.b64decode(document["source"]), "cores": tuple(document["cores"])}
        return JudgeOrder(**(document | told))


@dataclass(frozen=True, kw_only=True)
class AskOrder:
    """Ask a model for one candidate. No key is in here: whoever asks has it in its environment."""

    id: str
    model: str
    problem: str
    backend: str
    hardware: str
    ranks: int
    size: str
    dtype: str
    temperature: float | None = None
    max_tokens: int | None = None
    limit_s: float = 600.0
    price: dict[str, float] | None = None
    problems_folder: str | None = None
    kind: Literal["ask"] = "ask"


Order = JudgeOrder | AskOrder
What = Literal["stage", "done", "lost", "late", "broken", "refused"]


@dataclass(frozen=True)
class Event:
    """What became of an order.

    `stage`: it goes on, `text` says where. `done`: `document` is the answer. The others have no answer: `lost`, the process or
    machine is gone; `late`, over its limit of time; `broken`, an exception that is our bug; `refused`, wrong usage.
    """

    id: str
    what: What
    text: str = ""
    document: dict[str, Any] = field(default_factory=dict)


class Hands(Protocol):
    """Those who do the work: this machine (local.py) or a cluster (ray_hands.py). All is called from one thread."""

    @property
    def seats(self) -> int:
        """Evaluations at a time, now: machines come and go."""
        ...

    @property
    def builders(self) -> int: ...

    @property
    def askers(self) -> int: ...

    def start(self, order: Order) -> None: ...

    def events(self, timeout_s: float) -> list[Event]:
        """What has happened; waits up to `timeout_s` if nothing has."""
        ...

    def close(self) -> None:
        """Ends all that is still under way. Nothing of it is left when this returns."""
        ...


def folder_text(folder: Path | None) -> str | None:
    return str(folder.absolute()) if folder else None
