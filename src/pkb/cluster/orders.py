"""What is asked of those who work for a sweep, and what they say back: plain data that crosses pipes and machines as JSON."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pkb.judge.service.messages import JudgeEvent, JudgeOrder
from pkb.types.case import Case


@dataclass(frozen=True, kw_only=True)
class AskOrder:
    """Ask a model for one candidate. No key is in here: whoever asks has it in its environment."""

    id: str
    model: str
    case: Case
    backend: str
    hardware: str
    temperature: float | None = None
    max_tokens: int | None = None
    shots: int | None = None
    parts_folder: str | None = None
    retries: int = 4
    limit_s: float = 600.0
    price: dict[str, float] | None = None
    problems_folder: str | None = None
    kind: Literal["ask"] = "ask"


@dataclass(frozen=True)
class WrittenAnswer:
    """What a model said."""

    code: str | None
    """The candidate; None if the answer held none, and `problem` says why."""
    problem: str
    stop_reason: str
    tokens_in: int | None
    tokens_out: int | None
    cost_usd: float | None
    seconds: float
    transcript: Any
    """JSON."""


@dataclass(frozen=True)
class AskEvent(JudgeEvent):
    """What became of an order: of the judge's kinds, and `done` with an `answer` where a model was asked."""

    answer: WrittenAnswer | None = None


Order = JudgeOrder | AskOrder


class Executor(Protocol):
    """What does the work: this machine (local.py) or a cluster (ray_executor.py). All is called from one thread."""

    @property
    def seats(self) -> int:
        """Evaluations at a time, now: machines come and go."""
        ...

    @property
    def builders(self) -> int: ...

    @property
    def concurrency(self) -> int: ...

    def start(self, order: Order) -> None: ...

    def events(self, timeout_s: float) -> list[JudgeEvent]:
        """What has happened; waits up to `timeout_s` if nothing has."""
        ...

    def close(self) -> None:
        """Ends all that is still under way. Nothing of it is left when this returns."""
        ...
