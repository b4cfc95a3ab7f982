"""How a run is worked off: stored with it, so that whoever resumes it goes on in the same way. Never a secret."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pkb.judge.service.messages import EVALUATION_LIMIT_S
from pkb.types.json_value import Json
from pkb.types.stock import Against


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    timing: bool | None = None
    """None: where a time says something about speed, which it does not on a CPU."""
    against: Against = "baseline"
    """Which of the problem's own functions candidates are timed against. A run that was begun before there was a choice goes
    on against the reference."""
    problems_folder: str | None = None
    hardware: str = "h100x8"
    """The machine that a prompt speaks of."""
    temperature: float | None = None
    max_tokens: int | None = None
    prices: Mapping[str, dict[str, float]] = field(default_factory=dict)
    """US dollars a million tokens, by model."""
    ask_limit_s: float = 600.0
    evaluation_limit_s: float = EVALUATION_LIMIT_S
    call_limit_s: float = 60.0
    build_limit_s: float = 600.0

    def to_dict(self) -> dict[str, Json]:
        return asdict(self)

    @staticmethod
    def of(config: Mapping[str, Any]) -> "SweepSettings":
        """From a run's configuration; what is not there (a run that was imported) has its default."""
        stored = config.get("settings") or {}
        if stored and "against" not in stored:
            stored = {**stored, "against": "reference"}
        return SweepSettings(**{name: stored[name] for name in SweepSettings.__dataclass_fields__ if name in stored})
