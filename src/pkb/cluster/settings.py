"""How a run is carried out: stored with it, so that whoever resumes it goes on in the same way. Never a secret."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pkb.judge.service.messages import EVALUATION_LIMIT_S
from pkb.types.case import Case
from pkb.types.json_value import Json
from pkb.types.plan import MORE_S
from pkb.types.stock import Against

JUDGES_LIMIT_S, QUICK_LIMIT_S = 60.0, 20.0


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    timing: bool | None = None
    """None: where a time says something about speed, which it does not on a CPU."""
    against: Against = "baseline"
    """Which of the problem's own functions candidates are timed against. A run that was begun before there was a choice goes
    on against the reference."""
    profile: bool = False
    """Look at what the calls did on the device: about a second for each verdict."""
    problems_folder: str | None = None
    hardware: str = "h100x8"
    """The machine that a prompt speaks of."""
    temperature: float | None = None
    max_tokens: int | None = None
    shots: int | None = None
    """Worked examples in a prompt; None: one where the backend has any."""
    parts_folder: str | None = None
    retries: int = 4
    prices: Mapping[str, dict[str, float]] = field(default_factory=dict)
    """US dollars a million tokens, by model."""
    ask_limit_s: float = 600.0
    evaluation_limit_s: float = EVALUATION_LIMIT_S
    call_limit_s: float | None = None
    """None: `QUICK_LIMIT_S` on a GPU at the sizes whose calls take milliseconds, elsewhere the judge's own."""
    build_limit_s: float = 600.0
    more_s: float = MORE_S
    """What further rounds and starts of one candidate may take (`Job.more_s`)."""

    def call_limit_for(self, case: Case) -> float:
        """What the first calls of a candidate may take before they count as a deadlock. They load code and meet their peers;
        what is compiled when first called has a limit of its own on top."""
        if self.call_limit_s is not None:
            return self.call_limit_s
        return JUDGES_LIMIT_S if case.platform == "cpu" or case.size == "real" else QUICK_LIMIT_S

    def to_dict(self) -> dict[str, Json]:
        return asdict(self)

    @staticmethod
    def of(config: Mapping[str, Any]) -> "SweepSettings":
        """From a run's configuration; what is not there (a run that was imported) has its default."""
        stored = config.get("settings") or {}
        if stored and "against" not in stored:
            stored = {**stored, "against": "reference"}
        return SweepSettings(**{name: stored[name] for name in SweepSettings.__dataclass_fields__ if name in stored})
