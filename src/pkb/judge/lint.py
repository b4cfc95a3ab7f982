"""Shows that no null candidate passes a problem: one world of oracle ranks for all problems, sizes and dtypes."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pkb.judge.crew import Crew
from pkb.judge.failure import CrewFailure, CrewSpec
from pkb.judge.limits import UNLIMITED, Limits
from pkb.platforms.base import Platform
from pkb.platforms.registry import create
from pkb.problems.base import Problem
from pkb.problems.layouts import groups
from pkb.types.errors import UserError
from pkb.types.lint import LintRow

CASE_LIMIT_S = 300.0


def lint(
    problems: list[Problem],
    *,
    platform: str,
    sizes: list[str],
    world_sizes: list[int],
    dtypes: list[str],
    problems_folder: Path | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> list[LintRow]:
    place = create(platform)
    place.start()
    try:
        rows = []
        for world_size in world_sizes:
            rows += _lint_world(problems, place, sizes, world_size, dtypes, problems_folder, progress)
        return rows
    finally:
        place.stop()


def _lint_world(
    problems: list[Problem],
    platform: Platform,
    sizes: list[str],
    world_size: int,
    dtypes: list[str],
    problems_folder: Path | None,
    progress: Callable[[str], None],
) -> list[LintRow]:
    rows: list[LintRow] = []
    options = {
        "secret": secrets.token_hex(32),
        "problems_folder": str(problems_folder.resolve()) if problems_folder else None,
    }
    with Crew(CrewSpec("oracle", world_size, options=options), platform, Limits(memory_bytes=UNLIMITED)) as crew:
        progress(f"starting {world_size} ranks")
        crew.launch()
        crew.await_ready(timeout_s=180)
        for layout in sorted({problem.layout for problem in problems if world_size in problem.world_sizes}):
            crew.ask({"do": "open", "name": layout, "layout": groups(layout, world_size)}, timeout_s=120)
        for problem in problems:
            for size in sizes:
                for dtype in dtypes:
                    if problem.why_not(size, world_size, dtype) is not None:
                        continue
                    progress(f"{problem.stem}, {size}, {world_size} ranks, {dtype}")
                    case = {"do": "lint", "problem": problem.stem, "size": size, "dtype": dtype, "upstream": False}
                    try:
                        answers = crew.ask(case, timeout_s=CASE_LIMIT_S)
                    except CrewFailure as failure:
                        trace = str(failure.info.get("trace", ""))[-1500:]
                        where = f"{problem.stem}, {size}, {world_size} ranks, {dtype}"
                        text = f"linting {where} failed: {failure}\n{trace}"
                        raise UserError(text, "this is the problem's own defect") from failure
                    rows += _rows(problem, size, world_size, dtype, answers)
    return rows


def _rows(
    problem: Problem, size: str, world_size: int, dtype: str, answers: dict[int, dict[str, Any]]
) -> list[LintRow]:
    """A null candidate passes only if it passes on every rank, so its margin is the largest ratio over the ranks."""
    by_rank = [{row["null"]: row for row in answers[rank]["rows"]} for rank in sorted(answers)]
    honest = max(_ratio(rows["honest"]) for rows in by_rank)
    found = []
    for null in by_rank[0]:
        if null == "honest":
            continue
        margin = max(_ratio(rows[null]) for rows in by_rank)
        note = "; ".join(dict.fromkeys(rows[null]["note"] for rows in by_rank if rows[null]["note"]))
        found.append(
            LintRow(
                problem_id=problem.id,
                name=problem.name,
                size=size,
                ranks=world_size,
                dtype=dtype,
                null_candidate=null,
                passed=margin <= 1,
                margin=margin,
                honest_ratio=honest,
                note=note,
            )
        )
    return found


def _ratio(row: dict[str, Any]) -> float:
    return float("inf") if row["ratio"] is None else float(row["ratio"])
