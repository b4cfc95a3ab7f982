"""Reading what a candidate's rank reports: every part of it may be missing or of any type."""

from typing import Any

from pkb.judge.decision import malformed_report
from pkb.types.verdict import Stage


def mapping(answer: dict[str, Any], name: str, *, rank: int, stage: Stage) -> dict[str, Any]:
    """A reported object, empty if absent; anything else is a malformed report."""
    value = answer.get(name, {})
    if not isinstance(value, dict):
        raise malformed_report(rank, stage, f"{name} is a {type(value).__name__}")
    return value


def count(value: Any) -> int:
    """A reported number, or 0."""
    return value if type(value) is int else 0
