"""Runs the references by themselves: how long one call takes, and how much memory it needs. No candidate is involved."""

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from pkb.judge.crew.failure import CrewFailure
from pkb.judge.oracle_only.world import OracleWorld, failure_words
from pkb.judge.timing.measure import common_zero, cover_for
from pkb.platforms.base import Platform
from pkb.problems.base import Problem

CASE_LIMIT_S = 120.0
MEMORY_SHARE = 0.2
"""Of the platform's memory that the argument sets of one case may take."""


@dataclass(frozen=True)
class ReferenceRow:
    """One reference in one case; without a time where it failed, and then with the reason."""

    id: int
    name: str
    size: str
    ranks: int
    dtype: str
    time_us: float | None = None
    """Median over calls of the latest end minus the earliest start over all ranks."""
    spread_us: tuple[float, float] | None = None
    """Fastest and slowest call."""
    host_us: float | None = None
    """How long a call keeps the host of the slowest rank."""
    peak_bytes: int | None = None
    """Most memory that tensors took on one rank during one call: arguments, result and temporaries."""
    all_ranks_peak_bytes: int | None = None
    truth_peak_bytes: int | None = None
    """The same on all ranks together while the truth was computed, in float64 where the problem compares with that."""
    truth_error: str = ""
    argument_bytes: int = 0
    """Of one set, on the rank with most of them."""
    sets: int = 0
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def run_references(
    problems: list[Problem],
    *,
    platform: Platform,
    size: str,
    world_size: int,
    calls: int = 8,
    truth: bool = False,
    progress: Callable[[str], None] = lambda text: None,
    on_row: Callable[[ReferenceRow], None] = lambda row: None,
) -> list[ReferenceRow]:
    """Each in its default dtype, on a platform that has been started; a reference that fails costs no other its row."""
    rows = []
    with OracleWorld(platform, world_size) as world:
        for problem in problems:
            if problem.why_not(size, world_size, problem.default_dtype) is not None:
                continue
            progress(f"{problem.stem}, {size}, {world_size} ranks")
            rows.append(_run_case(world, platform, problem, size, calls, truth))
            on_row(rows[-1])
    return rows


def _run_case(
    world: OracleWorld, platform: Platform, problem: Problem, size: str, calls: int, truth: bool
) -> ReferenceRow:
    dtype = problem.default_dtype
    row: dict[str, Any] = {
        "id": problem.id, "name": problem.name, "size": size, "ranks": world.world_size, "dtype": dtype,
        "argument_bytes": problem.argument_bytes(size, world.world_size, dtype),
    }  # fmt: skip
    case = {"problem": problem.stem, "size": size, "dtype": dtype, "upstream": False}

    def ask(message: dict[str, Any]) -> dict[int, dict[str, Any]]:
        return world.ask(problem.layout, message, timeout_s=CASE_LIMIT_S)

    def draw(slot: int) -> None:
        ask({"do": "draw", "slot": slot, "call": slot, "keep": True, "send": False, **case})

    def run(slots: list[int], **options: Any) -> dict[int, dict[str, Any]]:
        return ask({"do": "run", "schedule": {"slots": slots, "aligned": True, **options}})

    def peaks() -> list[int]:
        return [answer["peak_bytes"] for answer in ask({"do": "memory", "reset": False}).values()]

    try:
        ask({"do": "drop"})
        ask({"do": "memory", "reset": True})
        draw(0)
        run([0])
        first = peaks()
        # Arguments and outputs of all sets are held until the end, as the judge holds them.
        room = int(MEMORY_SHARE * platform.facts().memory_bytes / max(1, sum(first)))
        row |= {"sets": (sets := max(1, min(calls, room)))}
        for slot in range(1, sets):
            draw(slot)
        slots = [call % sets for call in range(calls)]
        warm = run(slots)
        cover_us = cover_for(max(max(answer["host_us"]) for answer in warm.values()))
        answers = run(slots, cover_us=cover_us if platform.device == "cuda" else 0.0)
        ask({"do": "drop"})
    except CrewFailure as failure:
        return ReferenceRow(**row, error=failure_words(failure))
    if not common_zero(answers):
        return ReferenceRow(**row, error="the ranks did not begin together: the machine is too busy to take times")
    if truth:
        try:
            ask({"do": "memory", "reset": True})
            draw(0)
            ask({"do": "truth", "slots": [0]})
            row |= {"truth_peak_bytes": sum(peaks())}
            ask({"do": "drop"})
        except CrewFailure as failure:
            row |= {"truth_error": failure_words(failure)}
    times = [
        (max(a["calls"][call][1] for a in answers.values()) - min(a["calls"][call][0] for a in answers.values())) / 1e3
        for call in range(calls)
    ]
    return ReferenceRow(
        **row,
        time_us=statistics.median(times),
        spread_us=(min(times), max(times)),
        host_us=max(statistics.median(answer["host_us"]) for answer in answers.values()),
        peak_bytes=max(first),
        all_ranks_peak_bytes=sum(first),
    )
