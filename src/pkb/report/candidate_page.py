"""What a candidate's page shows: its verdict with all evidence, its source, its steps."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pkb.platforms.registry import traits
from pkb.report.contenders import Contender
from pkb.report.source_view import SourceView
from pkb.report.tries import Try
from pkb.report.words import VERDICT_MEANING
from pkb.store import EvaluationRow, Reader, Step
from pkb.types.document import VerdictDocument
from pkb.types.verdict import Evaluation, Failure, Mismatch, Timing

PARTS: Mapping[str, type] = {"mismatch": Mismatch, "failure": Failure, "timing": Timing}
TIMELINE_RECORDS = 600
"""Of one rank: more would be narrower than a pixel and heavy on the page."""
DIFF_LINES = 400
TRACE_CHARACTERS = 20_000
Record = tuple[float, float, str, str]
"""Start, length, name and role of what a device did."""


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
class Times:
    """In microseconds; the samples by round."""

    reference: list[list[float]] | None
    candidate: list[list[float]]
    floor: float | None
    ideal: float | None
    reachable: float | None


@dataclass(frozen=True)
class RankTimeline:
    rank: int | None
    records: list[Record]
    left_out: int


@dataclass(frozen=True)
class ShownStep:
    number: int
    step: Step | None
    row: EvaluationRow | None
    diff: str
    has_candidate: bool


def candidate_context(reader: Reader, each: Try, contender: Contender, source: SourceView | None) -> dict[str, Any]:
    last = each.last
    whole = _complete(VerdictDocument(reader.document(last.document_sha) if last else {}))
    document = whole.fields
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
        "source": source,
        "steps": _steps(reader, each),
        "chart_data": _charts(whole),
        "trace": _cut((document.get("failure") or {}).get("trace") or ""),
        "printed": _cut(document.get("output_tail") or ""),
    }


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


def _charts(document: VerdictDocument) -> dict[str, Times | dict[str, list[RankTimeline]]]:
    data: dict[str, Times | dict[str, list[RankTimeline]]] = {}
    timing = document.fields.get("timing") or {}
    if timing.get("candidate_samples_us"):
        roofline = timing.get("roofline") or {}
        data["times"] = Times(
            reference=timing.get("reference_samples_us"),
            candidate=timing["candidate_samples_us"],
            floor=timing.get("floor_us"),
            ideal=roofline.get("ideal_us"),
            reachable=roofline.get("reachable_us"),
        )
    profile = document.fields.get("profile") or {}
    sides = {side: _timeline(profile[side]) for side in ("candidate", "reference") if profile.get(side)}
    if any(rank.records for ranks in sides.values() for rank in ranks):
        data["timeline"] = sides
    return data


def _timeline(side: Mapping[str, Any]) -> list[RankTimeline]:
    ranks = []
    for rank in side.get("ranks") or ():
        records = [list(record) for record in rank.get("timeline") or ()]
        ranks.append(
            RankTimeline(
                rank=rank.get("rank"),
                records=[
                    (start, length, str(name)[:80], role) for start, length, name, role in records[:TIMELINE_RECORDS]
                ],
                left_out=max(0, len(records) - TIMELINE_RECORDS),
            )
        )
    return ranks


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
