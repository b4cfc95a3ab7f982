"""Runs a problem's own functions by themselves: how long one call takes, and how much memory it needs. No candidate is
involved."""

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from pkb.judge.crew.failure import CrewFailure
from pkb.judge.oracle_only.world import OracleWorld, failure_words
from pkb.judge.stages.baseline import what_is_wrong
from pkb.judge.timing.rounds import call_times, cover_for
from pkb.platforms.base import Platform
from pkb.problems.base import Problem
from pkb.types.json_value import Json
from pkb.types.protocol.commands import (
    CheckBaseline,
    Command,
    DrawOnly,
    DrawSpec,
    Drop,
    FindTruth,
    MeasureMemory,
    RunBatch,
    Schedule,
)
from pkb.types.protocol.replies import BatchReport, Reply
from pkb.types.stock import StockFunction

R = TypeVar("R", bound=Reply)
CASE_LIMIT_S = 300.0
MEMORY_SHARE = 0.2
"""Of the platform's memory that the argument sets of one case may take."""


@dataclass(frozen=True)
class ReferenceRow:
    """One function in one case; without a time, but with the reason, if it failed or is unsupported."""

    id: int
    name: str
    size: str
    ranks: int
    dtype: str
    function: StockFunction = "reference"
    """Which of the problem's own."""
    version: int = 0
    """Of the baseline, where that is what ran."""
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
    compared: float | None = None
    """Error over tolerance of its outputs, the worst of two calls; None of the reference, and where `compare_error` says so."""
    compare_error: str = ""
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
    function: StockFunction = "reference",
    truth: bool = False,
    problems_folder: Path | None = None,
    on_row: Callable[[ReferenceRow], None] = lambda row: None,
) -> list[ReferenceRow]:
    """Each in its default dtype, on a platform that has been started; one that fails costs no other its row. Problems that have
    no such function of their own (`baseline`, `stock_symmetric`) are left out."""
    rows = []
    with OracleWorld(platform, world_size, problems_folder=problems_folder) as world:
        for problem in problems:
            if (
                getattr(problem, function) is None
                or problem.why_not(size, world_size, problem.default_dtype) is not None
            ):
                continue
            rows.append(_run_case(world, platform, problem, size, calls, function, truth))
            on_row(rows[-1])
    return rows


def _run_case(
    world: OracleWorld,
    platform: Platform,
    problem: Problem,
    size: str,
    calls: int,
    function: StockFunction,
    truth: bool,
) -> ReferenceRow:
    dtype = problem.default_dtype
    row = ReferenceRow(
        id=problem.id, name=problem.name, size=size, ranks=world.world_size, dtype=dtype, function=function,
        argument_bytes=problem.argument_bytes(size, world.world_size, dtype),
        version=problem.baseline_version if function == "baseline" else 0,
    )  # fmt: skip
    shared = platform.device == "cuda" and platform.shares_device
    if shared and (reason := problem.why_not_on_one_gpu(size, world.world_size)) is not None:
        return replace(row, error=f"unsupported: {reason}")
    if function == "stock_symmetric" and platform.device != "cuda":
        return replace(row, error="unsupported: torch's symmetric-memory operators need GPUs")
    spec = DrawSpec(problem.stem, size, dtype)

    def ask(command: Command[R]) -> dict[int, R]:
        return world.ask(problem.layout, command, timeout_s=CASE_LIMIT_S)

    def run(slots: tuple[int, ...], *, cover_us: float = 0.0) -> dict[int, BatchReport]:
        # Drawn anew each time: whoever changes its arguments in place must not find them changed.
        for slot in sorted(set(slots)):
            ask(DrawOnly(spec, slot))
        return ask(RunBatch(Schedule(slots, aligned=True, cover_us=cover_us), function=function))

    def peaks() -> list[int]:
        return [answer.peak_bytes for answer in ask(MeasureMemory(reset=False)).values()]

    if function != "reference":
        try:
            results = ask(CheckBaseline(spec, (0, 1), function))
            if why := what_is_wrong(results, same_bits=problem.same_bits):
                return replace(row, error=f"wrong: {why}")  # nobody needs the time of a wrong result
            row = replace(row, compared=max(result.ratio or 0.0 for result in results.values()))
        except CrewFailure as failure:
            row = replace(row, compare_error=failure_words(failure))
    try:
        ask(Drop())
        ask(MeasureMemory(reset=True))
        run((0,))
        first = peaks()
        # Arguments and outputs of all sets are held until the end, as the judge holds them.
        room = int(MEMORY_SHARE * platform.facts().memory_for(len(first)) / max(1, sum(first)))
        row = replace(row, sets=(sets := max(1, min(calls, room))))
        # A set that a call has changed in place is another one: clipped gradients are not clipped again. None is used twice.
        batch = sets if problem.mutates else calls
        slots = tuple(call % sets for call in range(batch))
        warm = run(slots)
        cover_us = cover_for(max(max(report.host_us) for report in warm.values()))
        cover_us = cover_us if platform.device == "cuda" else 0.0
        batches = [run(slots, cover_us=cover_us) for _ in range(-(-calls // batch))]
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
    times = [us for reports in batches for us in call_times(reports).calls_us]
    return replace(
        row,
        time_us=statistics.median(times),
        spread_us=(min(times), max(times)),
        host_us=max(
            statistics.median(us for reports in batches for us in reports[rank].host_us) for rank in batches[0]
        ),
        peak_bytes=max(first),
        all_ranks_peak_bytes=sum(first),
    )
