"""Runs the references by themselves: how long one call takes, and how much memory it needs. No candidate is involved."""

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TypeVar

from pkb.judge.crew.failure import CrewFailure
from pkb.judge.oracle_only.world import OracleWorld, failure_words
from pkb.judge.timing.rounds import call_times, cover_for
from pkb.platforms.base import Platform
from pkb.problems.base import Problem
from pkb.types.json_value import Json
from pkb.types.protocol.commands import Command, DrawOnly, DrawSpec, Drop, FindTruth, MeasureMemory, RunBatch, Schedule
from pkb.types.protocol.replies import BatchReport, Reply

R = TypeVar("R", bound=Reply)
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
    """Median over calls, each that of the rank that takes longest."""
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

    def to_dict(self) -> dict[str, Json]:
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
    row = ReferenceRow(
        id=problem.id, name=problem.name, size=size, ranks=world.world_size, dtype=dtype,
        argument_bytes=problem.argument_bytes(size, world.world_size, dtype),
    )  # fmt: skip
    spec = DrawSpec(problem.stem, size, dtype)

    def ask(command: Command[R]) -> dict[int, R]:
        return world.ask(problem.layout, command, timeout_s=CASE_LIMIT_S)

    def run(slots: tuple[int, ...], *, cover_us: float = 0.0) -> dict[int, BatchReport]:
        return ask(RunBatch(Schedule(slots, aligned=True, cover_us=cover_us)))

    def peaks() -> list[int]:
        return [answer.peak_bytes for answer in ask(MeasureMemory(reset=False)).values()]

    try:
        ask(Drop())
        ask(MeasureMemory(reset=True))
        ask(DrawOnly(spec, 0))
        run((0,))
        first = peaks()
        # Arguments and outputs of all sets are held until the end, as the judge holds them.
        room = int(MEMORY_SHARE * platform.facts().memory_for(len(first)) / max(1, sum(first)))
        row = replace(row, sets=(sets := max(1, min(calls, room))))
        for slot in range(1, sets):
            ask(DrawOnly(spec, slot))
        slots = tuple(call % sets for call in range(calls))
        warm = run(slots)
        cover_us = cover_for(max(max(report.host_us) for report in warm.values()))
        reports = run(slots, cover_us=cover_us if platform.device == "cuda" else 0.0)
        ask(Drop())
    except CrewFailure as failure:
        return replace(row, error=failure_words(failure))
    if truth:
        try:
            ask(MeasureMemory(reset=True))
            ask(DrawOnly(spec, 0))
            ask(FindTruth((0,)))
            row = replace(row, truth_peak_bytes=sum(peaks()))
            ask(Drop())
        except CrewFailure as failure:
            row = replace(row, truth_error=failure_words(failure))
    times = call_times(reports).calls_us
    return replace(
        row,
        time_us=statistics.median(times),
        spread_us=(min(times), max(times)),
        host_us=max(statistics.median(report.host_us) for report in reports.values()),
        peak_bytes=max(first),
        all_ranks_peak_bytes=sum(first),
    )
