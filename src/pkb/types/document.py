"""A verdict as it is stored and sent."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pkb.types.stock import Against
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
        return Speedup.of(timing)

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
    """How many times faster than what it was timed against, with its 95 % interval."""

    value: float
    low: float
    high: float
    decision: str

    @classmethod
    def of(cls, timing: Mapping[str, Any]) -> "Speedup":
        low, high = timing["speedup_low"], timing["speedup_high"]
        return cls(float(timing["speedup"]), float(low), float(high), str(timing["decision"]))

    @classmethod
    def against(cls, which: Against, fields: Mapping[str, Any]) -> "Speedup | None":
        """Of a verdict that was timed, the reading against the problem's baseline or its reference; None where it was not
        taken."""
        timing, problem = fields["timing"], fields.get("problem") or {}
        if problem.get("baseline_version") is None or timing.get("against", "reference") == which:
            return cls.of(timing)
        other = timing.get("other")
        return cls.of(other) if isinstance(other, Mapping) else None

    def beats(self, p: float, *, proven: bool) -> bool:
        """Is it more than p times as fast?

        `proven` wants the whole interval above p; otherwise the middle is enough, as in published figures. A gain that
        the host wall clock does not confirm (`unproven`) beats no p of 1 or more in either reading.
        """
        if p >= 1 and (self.decision == "unproven" or (proven and self.decision != "faster")):
            return False
        return (self.low if proven else self.value) > p

    def __str__(self) -> str:
        return f"{self.value:.2f}x ({self.low:.2f} to {self.high:.2f}), {self.decision}"
