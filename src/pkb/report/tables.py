"""Rows of tables: for scripts (compact) and as CSV files (every table of the site)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pkb.analysis.document import COLUMNS, sample_row
from pkb.analysis.groups import words_of
from pkb.analysis.samples import best
from pkb.problems.base import Problem
from pkb.report.board import HEAT_AXES
from pkb.report.breakdown import ORDER
from pkb.report.comparing import Pair
from pkb.report.contenders import Contender
from pkb.report.pages import Pages
from pkb.report.tries import Try, file_safe

Entrant = tuple[Contender, Try]
WORDED = (
    "contender",
    "backend",
    "verdict",
    "mode",
    "communication",
    "decision",
    "platform",
    "hardware",
    "size",
    "dtype",
)
"""Columns of words that repeat: sent once, and by number in the rows."""
FIELDS = (
    "slug", "problem", "contender", "backend", "sample", "verdict", "mode", "communication", "decision", "speedup", "low",
    "high", "reference_us", "candidate_us", "utilisation", "platform", "hardware", "ranks", "size", "dtype", "steps",
    "cost", "detail",
)  # fmt: skip
DETAIL = 160


def problem_file(each: Try) -> str:
    return file_safe(each.task.problem)


def verdict_rows(everybody: Sequence[Contender], stems: Mapping[int, str]) -> dict[str, Any]:
    return verdict_rows_of([(one, each) for one in everybody for each in one.tries], stems)


def verdict_rows_of(entrants: Sequence[Entrant], stems: Mapping[int, str]) -> dict[str, Any]:
    """All a table needs to sort, filter and link ten thousand verdicts, in about a hundred bytes each."""
    words: dict[str, dict[str, int]] = {name: {} for name in WORDED}
    rows = []
    for contender, each in entrants:
        values = _values(contender, each)
        for name in WORDED:
            values[name] = words[name].setdefault(str(values[name] or ""), len(words[name]))
        rows.append([values[name] for name in FIELDS])
    numbers = {each.task.problem_id for _, each in entrants}
    return {
        "fields": FIELDS,
        "words": {name: list(known) for name, known in words.items()},
        "rows": rows,
        "stems": {str(number): stems[number] for number in sorted(numbers)},
    }


def _values(contender: Contender, each: Try) -> dict[str, Any]:
    sample, row = each.sample, each.last
    speed = sample.speed
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
        "reference_us": _short(row.reference_us if row else None),
        "candidate_us": _short(row.candidate_us if row else None),
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


def problem_row(number: int, problem: Problem | None, entrants: Sequence[Entrant]) -> dict[str, Any]:
    """A problem in the list, with one cell for each contender: its best try."""
    cells: dict[str, dict[str, Any]] = {}
    by_contender: dict[str, list[Try]] = {}
    for contender, each in entrants:
        by_contender.setdefault(contender.id, []).append(each)
    for name, tries in by_contender.items():
        chosen = best(each.sample for each in tries)
        shown = next((each for each in tries if each.sample is chosen), tries[-1])
        cells[name] = {
            "slug": shown.slug, "mode": shown.sample.mode.value, "tries": len(tries),
            "faster": shown.sample.speed is not None and shown.sample.speed.decision == "faster",
            "library": shown.sample.is_correct and shown.sample.communication == "library",
        }  # fmt: skip
    found = best(each.sample for _, each in entrants)
    return {
        "number": number,
        "stem": problem.stem if problem else problem_file(entrants[0][1]),
        "summary": problem.summary if problem else "a problem that this installation does not have",
        **{axis: words_of(problem, axis)[0] if problem else "" for axis in HEAT_AXES},
        "tries": len(entrants),
        "correct": sum(each.sample.is_correct for _, each in entrants),
        "speedup": found.speed.value if found and found.speed and found.speed.decision != "unproven" else None,
        "cells": cells,
    }


def neighbours(stems: Mapping[int, str], number: int) -> dict[str, str | None]:
    order = sorted(stems)
    position = order.index(number)
    return {
        "before": stems[order[position - 1]] if position else None,
        "after": stems[order[position + 1]] if position + 1 < len(order) else None,
    }


def curve_of(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: document[key] for key in ("id", "name", "view", "k", "curve", "conditions")}


# -- CSV --------------------------------------------------------------------------------------------------------------


def write_board(pages: Pages, documents: Sequence[Mapping[str, Any]], ours: Sequence[Mapping[str, Any]]) -> None:
    shares = ("correct", "custom", "library", "faster", "custom_faster")
    figures = ("speedup", "custom_speedup", "utilisation", "reference_utilisation")
    columns = ["name", "view", "k", "origin", "problems", "platform", "hardware", "ranks", "size", "dtype", "note"]
    columns += [f"{name}{part}" for name in shares + figures for part in ("", "_low", "_high")]
    columns += ["not_judged", "untimed", "cost_usd", "tokens", "steps", "run"]
    rows: list[dict[str, Any]] = []
    for document in documents:
        row = {key: document[key] for key in ("name", "view", "k", "problems", "not_judged", "untimed", "cost_usd",
                                              "tokens", "steps", "run")}  # fmt: skip
        row |= {key: " / ".join(said) for key, said in document["conditions"].items()}
        row |= {"origin": "measured", "note": "; ".join(document["notes"])}
        for name in shares + figures:
            if part := document[name]:
                row |= {name: part["value"], f"{name}_low": part["low"], f"{name}_high": part["high"]}
        rows.append(row)
    for one in ours:
        for view in ("single", "best", "agent"):
            if one[view]:
                rows.append(
                    {"name": one["name"], "view": view, "k": 3 if view == "best" else 1, "problems": one["problems"],
                     "origin": "published, not measured here", "correct": one[view]["correct"] / one["problems"],
                     "faster": one[view]["faster"] / one["problems"]}
                )  # fmt: skip
    pages.table("leaderboard", columns, rows)


def write_heat(pages: Pages, heat: Mapping[str, Any], everybody: Sequence[Contender]) -> None:
    rows = [
        {"axis": axis, "group": word, "collection": one.name, "problems": cell["passed"]["problems"],
         "correct": cell["passed"]["value"], "custom": cell["custom"]["value"] if cell["custom"] else None,
         "faster": cell["fast"]["value"] if cell["fast"] else None}
        for axis, found in heat.items() for one in everybody for word, cell in found["rows"][one.id].items()
    ]  # fmt: skip
    pages.table("taxonomy", ["axis", "group", "collection", "problems", "correct", "custom", "faster"], rows)


def write_problems(pages: Pages, rows: Sequence[Mapping[str, Any]]) -> None:
    columns = ["number", "stem", *HEAT_AXES, "tries", "correct", "speedup", "summary"]
    pages.table("problems", columns, rows)


def write_verdicts(pages: Pages, name: str, everybody: Sequence[Contender]) -> None:
    write_verdicts_of(pages, name, [(one, each) for one in everybody for each in one.tries])


def write_verdicts_of(pages: Pages, name: str, entrants: Sequence[Entrant]) -> None:
    rows = [
        sample_row(each.sample) | {"collection": one.name, "backend": each.task.backend, "name": each.task.problem,
                                   "page": f"c/{each.slug}.html", "detail": each.last.detail if each.last else ""}
        for one, each in entrants
    ]  # fmt: skip
    pages.table(name, [*COLUMNS, "detail", "page"], rows)


def write_breakdown(pages: Pages, modes: Mapping[str, Any], paths: Mapping[str, Any]) -> None:
    names = [mode for mode, _ in modes["modes"]]
    pages.table(
        "failure_modes",
        ["name", "published", "samples", *names],
        [{"name": row["name"], "published": row["published"], "samples": row["samples"], **row["counts"]}
         for row in modes["rows"]],
    )  # fmt: skip
    columns = ["name", "samples", *paths["communication"], *paths["paths"]]
    rows = [
        {"name": row["name"], "samples": row["samples"], **row["communication"], **row["paths"]}
        for row in paths["rows"]
    ]
    pages.table("paths", columns, rows)


def write_progress(pages: Pages, steps: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        {"name": one["name"], "step": number + 1, "tries": one["tries"], "correct": one["correct"][number],
         "faster": one["faster"][number], "cost_usd": one["cost"][number] if one["cost"] else None}
        for one in steps for number in range(one["steps"])
    ]  # fmt: skip
    pages.table("agent_progress", ["name", "step", "tries", "correct", "faster", "cost_usd"], rows)


def write_pair(pages: Pages, name: str, pair: Pair, stems: Mapping[int, str]) -> None:
    rows = [
        {"tries": k, "problem": stems[number], "answer": answer, "why": why,
         "first_speedup": one[0] if one else None, "second_speedup": two[0] if two else None}
        for k, reading in pair.readings.items() for number, answer, why, one, two in reading["rows"]
    ]  # fmt: skip
    pages.table(f"compare/{name}", ["tries", "problem", "answer", "why", "first_speedup", "second_speedup"], rows)
