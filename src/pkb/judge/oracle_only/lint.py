"""Shows that no null candidate passes a problem, and that its baseline does: one world of oracle ranks for all problems, sizes
and dtypes."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from pkb.judge.crew.failure import CrewFailure
from pkb.judge.oracle_only.world import OracleWorld, failure_words, running
from pkb.judge.stages.baseline import what_is_wrong
from pkb.problems.base import Problem
from pkb.types.lint import LintRow
from pkb.types.protocol.commands import CheckBaseline, CheckExact, DrawSpec, Lint
from pkb.types.protocol.replies import LintRows

CASE_LIMIT_S = 300.0
BROKEN = "the case itself"
FEWER_BITS = "int8_communication"
"""A null candidate of problems that only move data or add it up. Elsewhere it is a legal trick inside the tolerance, if it
passes: its distance is reported."""


def lint(
    problems: list[Problem],
    *,
    platform: str,
    sizes: list[str],
    world_sizes: list[int],
    dtypes: list[str],
    problems_folder: Path | None = None,
    progress: Callable[[str], None] = lambda text: None,
    on_rows: Callable[[list[LintRow]], None] = lambda rows: None,
) -> list[LintRow]:
    """Returns the rows of all cases; `on_rows` gets those of each case as soon as they are ready."""
    rows: list[LintRow] = []
    with running(platform, max(world_sizes), say=progress) as place:
        for world_size in world_sizes:
            with OracleWorld(place, world_size, problems_folder=problems_folder) as world:
                shared = place.device == "cuda" and place.shares_device
                for problem, size, dtype in _cases(problems, sizes, world_size, dtypes, shared=shared):
                    progress(f"{problem.stem}, {size}, {world_size} ranks, {dtype}")
                    rows += (found := _lint_case(world, problem, size, dtype))
                    on_rows(found)
    return rows


def _cases(
    problems: list[Problem], sizes: list[str], world_size: int, dtypes: list[str], *, shared: bool
) -> Iterator[tuple[Problem, str, str]]:
    for problem in problems:
        for size in sizes:
            for dtype in dtypes:
                too_large = problem.why_not_on_one_gpu(size, world_size) if shared else None
                if problem.why_not(size, world_size, dtype) is None and too_large is None:
                    yield problem, size, dtype


def _lint_case(world: OracleWorld, problem: Problem, size: str, dtype: str) -> list[LintRow]:
    try:
        answers = world.ask(problem.layout, Lint(DrawSpec(problem.stem, size, dtype)), timeout_s=CASE_LIMIT_S)
    except CrewFailure as failure:  # a case that cannot be linted proves nothing, and the others still can be
        return [
            LintRow(
                problem_id=problem.id, name=problem.name, size=size, ranks=world.world_size, dtype=dtype,
                null_candidate=BROKEN, passed=True, margin=0.0, honest_ratio=None, note=failure_words(failure),
            )
        ]  # fmt: skip
    return [*_rows(problem, size, world.world_size, dtype, answers), *_own_functions(world, problem, size, dtype)]


def _own_functions(world: OracleWorld, problem: Problem, size: str, dtype: str) -> Iterator[LintRow]:
    """What must pass: the baseline, in every case, by the comparison that candidates are judged by; the exact truth at `tiny`,
    where the reference's own always fits."""
    asked: list[tuple[str, CheckBaseline | CheckExact]] = []
    for kind in problem.kinds or ("",):
        spec = DrawSpec(problem.stem, size, dtype, kind=kind)
        if problem.baseline is not None:
            asked.append(("baseline", CheckBaseline(spec, (0, 1))))
        if problem.exact is not None and size == "tiny":
            asked.append(("exact", CheckExact(spec, 0)))
    for name, command in asked:
        row = LintRow(
            problem_id=problem.id, name=problem.name, size=size, ranks=world.world_size, dtype=dtype, null_candidate=name,
            passed=False, margin=math.inf, honest_ratio=None, must_pass=True,
        )  # fmt: skip
        try:
            results = world.ask(problem.layout, command, timeout_s=CASE_LIMIT_S)
        except CrewFailure as failure:
            yield replace(row, note=failure_words(failure))
            continue
        why = what_is_wrong(results, same_bits=problem.same_bits and name == "baseline")
        margin = max(math.inf if result.ratio is None else result.ratio for result in results.values())
        yield replace(row, passed=not why, margin=margin, note=why)


def _rows(problem: Problem, size: str, world_size: int, dtype: str, answers: dict[int, LintRows]) -> list[LintRow]:
    """A null candidate passes only if it passes on every rank, so its margin is the largest ratio over the ranks."""
    by_rank = [{row.null: row for row in answers[rank].rows} for rank in sorted(answers)]
    honest = max(rows["honest"].badness for rows in by_rank)
    found = []
    for null in by_rank[0]:
        if null == "honest":
            continue
        margin = max(rows[null].badness for rows in by_rank)
        note = "; ".join(dict.fromkeys(rows[null].note for rows in by_rank if rows[null].note))
        tolerated = null == FEWER_BITS and problem.taxonomy.layer != "collective"
        found.append(
            LintRow(
                problem_id=problem.id,
                name=problem.name,
                size=size,
                ranks=world_size,
                dtype=dtype,
                null_candidate=null,
                passed=margin <= 1 and not tolerated,
                margin=margin,
                honest_ratio=honest,
                note=note,
                tolerated=tolerated,
            )
        )
    return found
