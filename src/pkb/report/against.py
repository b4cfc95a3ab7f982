"""The two functions of a problem that a candidate may be timed against: its baseline, which decides who is faster, and its
reference, which published results are against. Where a problem has one function for both, it is the reference."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pkb.analysis.samples import Sample

REFERENCE = "reference"


class OtherSpeed(NamedTuple):
    """Against the function that does not decide."""

    against: str
    value: float
    low: float
    high: float


def timed_against(timing: Mapping[str, Any]) -> str:
    return str(timing.get("against") or REFERENCE)


def stock_times(timing: Mapping[str, Any]) -> dict[str, float]:
    """Medians in microseconds, by name; one of the two may be missing."""
    found = {timed_against(timing): float(timing["reference_us"])}
    if other := timing.get("other"):
        found[str(other["against"])] = float(other["us"])
    return found


def other_speed(sample: Sample) -> OtherSpeed | None:
    """Of a candidate whose times are believed; None where it was timed against one function only."""
    other = ((sample.evaluation or {}).get("timing") or {}).get("other")
    if sample.speed is None or not other:
        return None
    return OtherSpeed(str(other["against"]), other["speedup"], other["speedup_low"], other["speedup_high"])


def other_speedup(sample: Sample) -> float | None:
    """Against the reference, as `believed_speedup`, for the mean of a collection."""
    other = other_speed(sample)
    if other is None or other.against != REFERENCE or sample.speed is None or sample.speed.decision == "unproven":
        return None
    return other.value
