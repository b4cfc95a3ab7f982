"""What a candidate's page shows: its verdict with all evidence, its source, its steps."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from pkb.analysis.conversation import Turn, conversation
from pkb.platforms.registry import traits
from pkb.report import charts
from pkb.report.against import timed_against
from pkb.report.charts import Times
from pkb.report.contenders import Contender
from pkb.report.race_picture import shown_race
from pkb.report.source_view import SourceView
from pkb.report.svg import Chart
from pkb.report.timeline import RankTimeline, has_one_base, read_timelines, trace_events
from pkb.report.tries import Try
from pkb.report.words import VERDICT_MEANING
from pkb.store import EvaluationRow, Reader, Step
from pkb.types.document import VerdictDocument
from pkb.types.units import window_words
from pkb.types.verdict import Evaluation, Failure, Mismatch, Timing

PARTS: Mapping[str, type] = {"mismatch": Mismatch, "failure": Failure, "timing": Timing}
DIFF_LINES = 400
TRACE_CHARACTERS = 20_000
MOST_TURNS = 200


@dataclass(frozen=True)
class RankDot:
    rank: int
    failing: bool
    described: bool


@dataclass(frozen=True)
class MismatchRegion:
    name: str
    share: float


@dataclass(frozen=True)
class ShownStep:
    number: int
    step: Step | None
    row: EvaluationRow | None
    diff: str
    has_candidate: bool


def candidate_context(reader: Reader, each: Try, contender: Contender, source: SourceView | None) -> dict[str, Any]:
    last = each.last
    stored = reader.document(last.document_sha) if last else {}
    whole = _complete(VerdictDocument(stored))
    document = whole.fields
    times, sides = _times(whole), read_timelines(document.get("profile") or {})
    verdict = each.sample.verdict
    return {
        "try": each,
        "contender": contender,
        "judged": last is not None,
        "document": document,
        "verdict": verdict,
        "mode": each.sample.mode.value,
        "meaning": VERDICT_MEANING[verdict],
        "platform_note": traits(each.place("platform")).note,
        "believed": verdict in ("correct", "reused_output"),
        "ranks": _ranks(whole),
        "regions": _regions(whole),
        "states": document.get("rank_states") or [],
        "race": shown_race(document),
        "source": source,
        "elsewhere": source is None and bool((document.get("candidate") or {}).get("sha256")),
        "steps": _steps(reader, each),
        "turns": _turns(reader, each),
        "window": _window(document.get("timing") or {}),
        "pictures": [("Distribution", charts.histogram(times)), ("Call by call", charts.calls(times))] if times else [],
        "timelines": _timelines(sides),
        "trace_events": trace_events(sides, title=f"{each.task.problem}, {contender.name}") if sides else None,
        "verdict_json": stored,
        "one_base": has_one_base(sides),
        "left_out": sum(rank.left_out for ranks in sides.values() for rank in ranks),
        "trace": _cut((document.get("failure") or {}).get("trace") or ""),
        "printed": _cut(document.get("output_tail") or ""),
    }


def _window(timing: Mapping[str, Any]) -> str:
    value, low, high = (timing.get(f"window_speedup{end}") for end in ("", "_low", "_high"))
    return window_words(value, low, high, timing.get("empty_walls_us") or ())


def _turns(reader: Reader, each: Try) -> list[Turn]:
    """What was said, where a model was asked; the verdicts stand with the steps."""
    said = [turn for turn in conversation(reader, each) if turn.role != "verdict"] if each.steps else []
    return [replace(turn, text=_cut(turn.text)) for turn in said[:MOST_TURNS]]


def _complete(document: VerdictDocument) -> VerdictDocument:
    """With every field that a verdict can have: one that an older pkb wrote may lack some."""
    whole = {name.name: None for name in fields(Evaluation)} | dict(document.fields)
    for part, kind in PARTS.items():
        if isinstance(whole[part], Mapping):
            whole[part] = {name.name: None for name in fields(kind)} | dict(whole[part])
    for name in ("stage_seconds", "isolation", "environment"):
        whole[name] = whole[name] or {}
    return VerdictDocument(whole | {name: whole[name] or [] for name in ("checks", "paths", "hints")})


def _cut(text: str) -> str:
    return text if len(text) <= TRACE_CHARACTERS else "… " + text[-TRACE_CHARACTERS:]


def _ranks(document: VerdictDocument) -> list[RankDot]:
    """Every rank with how it came out, for the picture of who differs."""
    mismatch = document.fields.get("mismatch") or {}
    failing = {*(document.fields.get("failing_ranks") or ()), *(mismatch.get("ranks") or ())}
    count = document.fields.get("ranks") or 0
    if not failing or not isinstance(count, int):
        return []
    return [
        RankDot(rank, failing=rank in failing, described=rank == mismatch.get("rank"))
        for rank in range(max(count, max(failing) + 1))
    ]


def _regions(document: VerdictDocument) -> list[MismatchRegion]:
    regions = (document.fields.get("mismatch") or {}).get("regions") or ()
    return [MismatchRegion(str(name), float(share)) for name, share in regions]


def _times(document: VerdictDocument) -> Times | None:
    """Of single calls; None where there are none. Calls of nothing at all would be no picture."""
    timing = document.fields.get("timing") or {}
    if not any(timing.get("candidate_samples_us") or ()):
        return None
    return Times(
        reference=timing.get("reference_samples_us"),
        candidate=timing["candidate_samples_us"],
        floor=timing.get("floor_us"),
        ideal=(timing.get("roofline") or {}).get("ideal_us"),
        against=timed_against(timing),
    )


def _timelines(sides: Mapping[str, Sequence[RankTimeline]]) -> dict[str, Chart]:
    end_us = max((rank.end_us for ranks in sides.values() for rank in ranks), default=0.0)
    return {
        side: charts.timeline(
            ranks, label=f"timeline of the {side}", end_us=end_us or 1.0, one_base=has_one_base(sides)
        )
        for side, ranks in sides.items()
    }


def _steps(reader: Reader, each: Try) -> list[ShownStep]:
    """An agent's steps: what each cost, what the judge said, and what changed in the source since the step before."""
    if not each.steps and len(each.judged) < 2:
        return []
    said = {step.step: step for step in each.steps}
    judged = {row.step: row for row in each.judged}
    shown: list[ShownStep] = []
    before: tuple[str, str] | None = None
    for number in sorted({*said, *judged}):
        step, row = said.get(number), judged.get(number)
        sha = (row.candidate_sha if row else None) or (step.candidate_sha if step else None)
        diff = ""
        if sha and len({*said, *judged}) > 1:
            text = reader.source(sha) if before is None or before[0] != sha else before[1]
            diff = "" if before is None else _diff(before[1], text)
            before = (sha, text)
        shown.append(ShownStep(number, step, row, diff, has_candidate=sha is not None))
    return shown


def _diff(old: str, new: str) -> str:
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), "before", "after", n=2, lineterm=""))[2:]
    cut = [f"… {len(lines) - DIFF_LINES} more lines"] if len(lines) > DIFF_LINES else []
    return "\n".join(line[:300] for line in lines[:DIFF_LINES] + cut)
