"""Reading what a candidate's rank reports: every part of it may be missing or of any type."""

from typing import Any

from pkb.judge.decision import Decided
from pkb.types.verdict import Failure, Stage, Verdict


def mapping(answer: dict[str, Any], name: str, *, rank: int, stage: Stage) -> dict[str, Any]:
    """A reported object, empty if absent; anything else is a malformed report."""
    value = answer.get(name, {})
    if not isinstance(value, dict):
        text = f"{name} is a {type(value).__name__}"
        raise Decided(
            Verdict.REJECTED,
            stage,
            f"rank {rank} sent a malformed report: {text}",
            {"failing_ranks": (rank,), "failure": Failure("malformed report", text, rank=rank)},
        )
    return value


def count(value: Any) -> int:
    """A reported number, or 0."""
    return value if type(value) is int else 0
