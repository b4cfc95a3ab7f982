"""Rows of tables: for scripts (compact), and as CSV and JSON files (every table of the site)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pkb.analysis.document import COLUMNS, sample_row
from pkb.analysis.groups import words_of
from pkb.analysis.published import Category
from pkb.analysis.samples import best
from pkb.analysis.score import Figure, Share
from pkb.problems.base import Problem
from pkb.report.against import other_speed, timed_against
from pkb.report.board import HEAT_AXES, VIEWS, BoardRow, HeatMap
from pkb.report.breakdown import ORDER, AgentProgress, FailureModes, PathsUsed
from pkb.report.comparing import Pair
from pkb.report.contenders import Contender, Entrant
from pkb.report.pages import Cell, Pages
from pkb.report.problem_page import RooflineLimits
from pkb.report.published_rows import MARK, PublishedRow
from pkb.report.tries import Try, file_safe
from pkb.store import RunSummary

WORDED = (
    "contender",
    "backend",
    "verdict",
    "mode",
    "communication",
    "decision",
    "against",
    "platform",
    "hardware",
    "size",
    "dtype",
)
"""Columns of words that repeat: sent once, and by number in the rows."""
DETAIL = 160


@dataclass(frozen=True)
class VerdictTable:
    """For the script that draws it."""

    fields: tuple[str, ...]
    words: dict[str, list[str]]
    rows: list[list[Cell]]
    stems: dict[str, str]


@dataclass(frozen=True)
class ProblemCell:
    """The best try of one contender."""

    slug: str
    mode: str
    tries: int
    faster: bool
    library: bool


@dataclass(frozen=True)
class ProblemRow:
    number: int
    stem: str
    summary: str
    parallelism: str
    layer: str
    pattern: str
    tries: int
    correct: int
    speedup: float | None
    cells: dict[str, ProblemCell]
    """By contender."""


def problem_file(each: Try) -> str:
    return file_safe(each.task.problem)


def verdict_rows(entrants: Sequence[Entrant], stems: Mapping[int, str]) -> VerdictTable:
    """All a table needs to sort, filter and link ten thousand verdicts, in about a hundred bytes each."""
    words: dict[str, dict[str, int]] = {name: {} for name in WORDED}
    table = [_values(contender, each) for contender, each in entrants]
    for values in table:
        for name in WORDED:
            values[name] = words[name].setdefault(str(values[name] or ""), len(words[name]))
    numbers = {each.task.problem_id for _, each in entrants}
    return VerdictTable(
        fields=tuple(table[0]) if table else (),
        words={name: list(known) for name, known in words.items()},
        rows=[list(values.values()) for values in table],
        stems={str(number): stems[number] for number in sorted(numbers)},
    )


def _values(contender: Contender, each: Try) -> dict[str, Cell]:
    sample, row = each.sample, each.last
    speed, other = sample.speed, other_speed(sample)
    timing = (sample.evaluation or {}).get("timing") or {}
    return {
        "slug": each.slug,
        "problem": each.task.problem_id,
        "contender": contender.name,
        "backend": each.task.backend,
        "sample": each.task.sample,
        "verdict": sample.verdict,
        "mode": sample.mode.value,
        "communication": sample.communication,
        "decision": speed.decision if speed else "",
        "speedup": _short(speed.value if speed else None),
        "low": _short(speed.low if speed else None),
        "high": _short(speed.high if speed else None),
        "against": timed_against(timing),
        "other_speedup": _short(other.value if other else None),
        "reference_us": _short(row.reference_us if row else None),
        "candidate_us": _short(row.candidate_us if row else None),
        "alg_gbps": _short(timing.get("candidate_alg_gbps")),
        "bus_gbps": _short(timing.get("candidate_bus_gbps")),
        "utilisation": _short(sample.utilisation),
        "platform": each.place("platform"),
        "hardware": each.place("hardware"),
        "ranks": int(each.place("ranks")),
        "size": each.place("size"),
        "dtype": each.place("dtype"),
        "steps": each.step_count if each.steps or each.is_loop else None,
        "cost": _short(sample.cost_usd),
        "detail": (row.detail if row else "no candidate came back")[:DETAIL],
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def outcome_counts(entrants: Sequence[Entrant]) -> list[tuple[str, int]]:
    """Failure modes with how many tries ended so, in the order of the bars."""
    counts = Counter(each.sample.mode for _, each in entrants)
    return [(mode.value, counts[mode]) for mode in ORDER if counts[mode]]


def problem_row(number: int, problem: Problem | None, entrants: Sequence[Entrant]) -> ProblemRow:
    """A problem in the list, with one cell for each contender: its best try."""
    cells: dict[str, ProblemCell] = {}
    by_contender: dict[str, list[Try]] = {}
    for contender, each in entrants:
        by_contender.setdefault(contender.id, []).append(each)
    for name, tries in by_contender.items():
        chosen = best(each.sample for each in tries)
        shown = next((each for each in tries if each.sample is chosen), tries[-1])
        cells[name] = ProblemCell(
            slug=shown.slug,
            mode=shown.sample.mode.value,
            tries=len(tries),
            faster=shown.sample.speed is not None and shown.sample.speed.decision == "faster",
            library=shown.sample.is_correct and shown.sample.communication == "library",
        )
    found = best(each.sample for _, each in entrants)
    parallelism, layer, pattern = (words_of(problem, axis)[0] if problem else "" for axis in HEAT_AXES)
    return ProblemRow(
        number=number,
        stem=problem.stem if problem else problem_file(entrants[0][1]),
        summary=problem.summary if problem else "a problem that this installation does not have",
        parallelism=parallelism,
        layer=layer,
        pattern=pattern,
        tries=len(entrants),
        correct=sum(each.sample.is_correct for _, each in entrants),
        speedup=found.speed.value if found and found.speed and found.speed.decision != "unproven" else None,
        cells=cells,
    )


def neighbours(stems: Mapping[int, str], number: int) -> dict[str, str | None]:
    order = sorted(stems)
    position = order.index(number)
    return {
        "before": stems[order[position - 1]] if position else None,
        "after": stems[order[position + 1]] if position + 1 < len(order) else None,
    }


# -- CSV and JSON --------------------------------------------------------------------------------------------------------------


def write_board(pages: Pages, measured: Sequence[BoardRow], published: Sequence[PublishedRow]) -> None:
    shares = ("correct", "published_correct", "custom", "library", "faster", "custom_faster")
    figures = ("speedup", "custom_speedup", "other_speedup", "utilisation", "reference_utilisation")
    columns = ["name", "view", "k", "origin", "problems", "platform", "hardware", "ranks", "size", "dtype", "note"]
    columns += [f"{name}{part}" for name in shares + figures for part in ("", "_low", "_high")]
    columns += ["not_judged", "untimed", "cost_usd", "tokens", "steps", "run"]
    rows: list[dict[str, Cell]] = []
    for one in measured:
        row: dict[str, Cell] = {
            "name": one.contender.name, "view": one.view, "k": one.k, "problems": one.problems,
            "not_judged": one.not_judged, "untimed": one.untimed, "cost_usd": one.cost_usd, "tokens": one.tokens,
            "steps": one.steps, "run": one.contender.run.id,
        }  # fmt: skip
        row |= {key: " / ".join(said) for key, said in one.contender.conditions.items()}
        row |= {"origin": "measured", "note": "; ".join(one.contender.notes)}
        for name in shares + figures:
            part: Share | Figure | None = getattr(one, name)
            if part is not None:
                row |= {name: part.value, f"{name}_low": part.interval.low, f"{name}_high": part.interval.high}
        rows.append(row)
    rows += [
        {"name": said.name, "view": view, "k": 3 if view == "best" else 1, "problems": said.problems, "origin": MARK,
         "correct": counted.correct / said.problems, "faster": counted.faster / said.problems}
        for said in published for view in VIEWS if (counted := said.reading(view))
    ]  # fmt: skip
    pages.table("leaderboard", columns, rows)
    curves: list[dict[str, Cell]] = [
        {"name": one.contender.name, "view": one.view, "k": one.k, "origin": "measured", "p": p, "share": share.value,
         "low": share.interval.low, "high": share.interval.high}
        for one in measured for p, share in one.curve
    ]  # fmt: skip
    curves += [
        {"name": said.name, "view": "single", "k": 1, "origin": MARK, "p": p, "share": share}
        for said in published for p, share in said.curve
    ]  # fmt: skip
    pages.table("fast_p", ["name", "view", "k", "origin", "p", "share", "low", "high"], curves)


def write_published(pages: Pages, rows: Sequence[PublishedRow], categories: Sequence[Category]) -> None:
    columns = ["name", "origin", "problems", "correct_1", "correct_3", "faster_1", "faster_3"]
    pages.table(
        "published",
        columns,
        [
            {"name": one.name, "origin": MARK, "problems": one.problems, "correct_1": one.single.correct,
             "correct_3": one.best.correct, "faster_1": one.single.faster, "faster_3": one.best.faster}
            for one in rows
        ],
    )  # fmt: skip
    pages.table(
        "published_categories",
        ["category", "parallelism", "problems", "model", "correct_1", "correct_3"],
        [
            {"category": one.name, "parallelism": one.parallelism, "problems": one.problems, "model": model,
             "correct_1": found.pass_at_1, "correct_3": found.pass_at_3}
            for one in categories for model, found in one.results.items()
        ],
    )  # fmt: skip


def write_runs(pages: Pages, summaries: Sequence[RunSummary]) -> None:
    columns = ["run", "name", "kind", "state", "done", "failed", "tasks", "platform", "hardware", "note"]
    pages.table(
        "runs",
        columns,
        [
            {"run": one.run.id, "name": one.run.name, "kind": one.run.kind, "state": one.shown_state,
             "done": one.tasks.get("done", 0), "failed": one.tasks.get("failed", 0), "tasks": sum(one.tasks.values()),
             "platform": ", ".join(one.platforms), "hardware": ", ".join(one.hardware), "note": one.run.note}
            for one in summaries
        ],
    )  # fmt: skip


def write_limits(pages: Pages, found: Mapping[str, RooflineLimits]) -> None:
    """Of every problem and size: what the roofline says, or why it says nothing."""
    columns = [
        "problem", "size", "ranks", "dtype", "hardware", "flops", "hbm_bytes", "link_sent_bytes", "ideal_us",
        "reachable_us", "unoverlapped_us", "latency_us", "binds", "why_not",
    ]  # fmt: skip
    rows: list[dict[str, Cell]] = []
    for stem, limits in found.items():
        for row in limits.rows:
            said: dict[str, Cell] = {
                "problem": stem, "size": row.size, "ranks": limits.ranks, "dtype": limits.dtype,
                "hardware": limits.hardware.name, "why_not": row.why_not,
            }  # fmt: skip
            if row.bounds:
                ideal = row.bounds["ideal"]
                said |= {
                    "flops": ideal.flops, "hbm_bytes": ideal.hbm_bytes, "link_sent_bytes": ideal.link_sent_bytes,
                    "ideal_us": ideal.bound_us, "reachable_us": row.bounds["reachable"].bound_us,
                    "unoverlapped_us": ideal.unoverlapped_us, "latency_us": ideal.floor_us, "binds": ideal.binds,
                }  # fmt: skip
            rows.append(said)
    pages.table("limits", columns, rows)


def write_heat(pages: Pages, heat: Mapping[str, HeatMap], everybody: Sequence[Contender]) -> None:
    rows = [
        {"axis": axis, "group": word, "collection": one.name, "problems": cell.passed.problems,
         "correct": cell.passed.value, "custom": cell.custom.value if cell.custom else None,
         "faster": cell.fast.value if cell.fast else None}
        for axis, found in heat.items() for one in everybody for word, cell in found.rows[one.id].items() if cell.passed
    ]  # fmt: skip
    pages.table("taxonomy", ["axis", "group", "collection", "problems", "correct", "custom", "faster"], rows)


def write_problems(pages: Pages, rows: Sequence[ProblemRow]) -> None:
    columns = ["number", "stem", *HEAT_AXES, "tries", "correct", "speedup", "summary"]
    pages.table("problems", columns, map(vars, rows))


def write_verdicts(pages: Pages, name: str, entrants: Sequence[Entrant]) -> None:
    rows = []
    for one, each in entrants:
        row = sample_row(each.sample) | {
            "collection": one.name, "backend": each.task.backend, "name": each.task.problem, "page": f"c/{each.slug}.html",
            "detail": each.last.detail if each.last else "",
        }  # fmt: skip
        if each.sample.speed:
            row["against"] = timed_against((each.sample.evaluation or {}).get("timing") or {})
        if other := other_speed(each.sample):
            row |= {f"other_{part}": said for part, said in other._asdict().items()}
        rows.append(row)
    others = ("against", "other_against", "other_value", "other_low", "other_high")
    pages.table(name, [*COLUMNS, *others, "detail", "page"], rows)


def write_breakdown(pages: Pages, modes: FailureModes, paths: PathsUsed) -> None:
    names = [mode for mode, _ in modes.modes]
    pages.table(
        "failure_modes",
        ["name", "published", "samples", *names],
        [{"name": row.name, "published": row.published, "samples": row.samples, **row.counts} for row in modes.rows],
    )
    columns = ["name", "samples", *paths.communication, *paths.paths]
    pages.table(
        "paths",
        columns,
        [{"name": row.name, "samples": row.samples, **row.communication, **row.paths} for row in paths.rows],
    )


def write_progress(pages: Pages, steps: Sequence[AgentProgress]) -> None:
    rows = [
        {"name": one.name, "step": number + 1, "tries": one.tries, "correct": one.correct[number],
         "faster": one.faster[number], "cost_usd": one.cost[number] if one.cost else None}
        for one in steps for number in range(one.steps)
    ]  # fmt: skip
    pages.table("agent_progress", ["name", "step", "tries", "correct", "faster", "cost_usd"], rows)


def write_pair(pages: Pages, name: str, pair: Pair, stems: Mapping[int, str]) -> None:
    rows = [
        {"tries": k, "problem": stems[row.problem], "answer": row.answer, "why": row.why,
         "first_speedup": row.first[0] if row.first else None, "second_speedup": row.second[0] if row.second else None}
        for k, reading in pair.readings.items() for row in reading.rows
    ]  # fmt: skip
    pages.table(f"compare/{name}", ["tries", "problem", "answer", "why", "first_speedup", "second_speedup"], rows)
