"""A verdict as it is stored and sent."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pkb.types.timing import tells_speed


@dataclass(frozen=True)
class VerdictDocument:
    """The JSON of an `Evaluation` as it is, perhaps of an older version, with what most readers ask of it."""

    fields: Mapping[str, Any]

    @property
    def verdict(self) -> str:
        return str(self.fields["verdict"])

    @property
    def detail(self) -> str:
        return str(self.fields["detail"])

    @property
    def is_correct(self) -> bool:
        return self.verdict == "correct"

    @property
    def communication(self) -> str:
        return str(self.fields.get("communication") or "unknown")

    @property
    def seconds(self) -> float:
        """What the judge took for it."""
        return float(sum((self.fields.get("stage_seconds") or {}).values()))

    @property
    def speedup(self) -> "Speedup | None":
        """None unless it is correct and was timed where that says something about speed: a rejected candidate's times are a
        claim that nobody should use."""
        timing = self.fields.get("timing")
        if not self.is_correct or not timing or not tells_speed(str(self.fields.get("platform"))):
            return None
        return Speedup(
            float(timing["speedup"]),
            float(timing["speedup_low"]),
            float(timing["speedup_high"]),
            str(timing["decision"]),
        )

    @property
    def in_brief(self) -> str:
        """`correct, 1.23x (1.10 to 1.36), faster` or `wrong: output 0 differs on rank 1`."""
        if not self.is_correct:
            return f"{self.verdict}: {self.detail}"
        return f"correct, {self.speedup}" if self.speedup else "correct, not timed"

    def without_samples(self) -> "VerdictDocument":
        """For logs: all that was measured would make them large."""
        timing = {k: v for k, v in (self.fields.get("timing") or {}).items() if not k.endswith("_samples_us")}
        return VerdictDocument({**self.fields, "timing": timing or None, "profile": None})


@dataclass(frozen=True)
class Speedup:
    value: float
    low: float
    high: float
    decision: str

    def __str__(self) -> str:
        return f"{self.value:.2f}x ({self.low:.2f} to {self.high:.2f}), {self.decision}"
