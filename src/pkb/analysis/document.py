"""Scores as plain JSON and as rows, for programs and spreadsheets."""

from collections.abc import Mapping
from typing import Any

from pkb.analysis.compare import RunComparison
from pkb.analysis.groups import Group
from pkb.analysis.lost import PlanComparison
from pkb.analysis.modes import FailureMode
from pkb.analysis.samples import Sample
from pkb.analysis.score import Figure, Score, Share
from pkb.types.json_value import Json

COLUMNS = (
    "collection", "problem", "name", "sample", "step", "verdict", "failure_mode", "judged", "communication", "decision",
    "speedup", "speedup_low", "speedup_high", "utilisation", "platform", "hardware", "ranks", "size", "dtype", "plan",
    "backend", "cost_usd", "tokens", "tokens_in", "tokens_out", "origin",
)  # fmt: skip


def score_document(score: Score) -> dict[str, Json]:
    return {
        "collection": score.collection,
        "samples": score.samples,
        "problems": score.problems,
        "judged_problems": score.judged_problems,
        "not_judged_samples": score.not_judged,
        "most_tries": score.most_tries,
        "verdicts": dict(score.verdicts),
        "failure_modes": {mode.value: score.modes.get(mode, 0) for mode in FailureMode},
        "communication_of_correct": dict(score.communication),
        "pass_at": _shares(score.pass_at),
        "pass_first": _shares(score.pass_first),
        "reused_outputs": score.reused,
        "pass_published_at": _shares(score.pass_published_at),
        "custom_pass_at": _shares(score.custom_pass_at),
        "fast_1_at": _shares(score.fast_1_at),
        "custom_fast_1_at": _shares(score.custom_fast_1_at),
        "fast_1_first": _shares(score.fast_1_first),
        "fast_p": _shares(score.curve),
        "fast_p_point": _shares(score.curve_point),
        "untimed_correct": score.untimed,
        "unproven_correct": score.unproven,
        "geometric_mean_speedup": _figure(score.speedup),
        "custom_geometric_mean_speedup": _figure(score.custom_speedup),
        "median_utilisation": _figure(score.utilisation),
        "median_reference_utilisation": _figure(score.reference_utilisation),
        "against": score.against,
        "suites": dict(score.suites),
        "mixed": list(score.mixed),
        "conditions": [
            dict(zip(("platform", "hardware", "ranks", "size", "dtype"), key, strict=True)) | {"samples": count}
            for key, count in score.conditions.items()
        ],
        "cost_usd": score.cost_usd,
        "tokens": score.tokens,
        "tokens_in": score.tokens_in,
        "tokens_out": score.tokens_out,
    }


def group_document(group: Group) -> dict[str, Json]:
    return {
        "axis": group.axis,
        "group": group.name,
        "problems": group.problems,
        "samples": group.samples,
        "passed": share_document(group.passed),
        "custom": share_document(group.custom),
        "fast_1": share_document(group.fast),
    }


def comparison_document(comparison: RunComparison) -> dict[str, Json]:
    return {
        "first": comparison.first,
        "second": comparison.second,
        "k": comparison.k,
        "both": comparison.both,
        "only_first": comparison.only_first,
        "only_second": comparison.only_second,
        "neither": comparison.neither,
        "mcnemar_p": comparison.p_value,
        "summary": comparison.summary,
        "problems": [{"problem": row.problem, "answer": row.answer, "why": row.why} for row in comparison.rows],
    }


def plans_document(compared: PlanComparison) -> dict[str, Json]:
    return {
        "candidates": compared.candidates,
        "judged_by_other_rules": compared.other_rules,
        "right_as_published": compared.right_as_published,
        "right": compared.right,
        "faster_as_published": compared.faster_as_published,
        "faster": compared.faster,
        "untimed_as_published": compared.untimed_as_published,
        "untimed": compared.untimed,
        "right_only_by_ours": compared.only_by_ours,
        "lost": {loss.value: count for loss, count in compared.counts.items()},
        "lost_samples": [
            {"problem": one.problem, "sample": one.sample, "loss": one.loss.value, "verdict": one.verdict}
            for one in compared.lost
        ],
    }


def sample_row(sample: Sample) -> dict[str, str | float]:
    """One sample by `COLUMNS`; empty where there is nothing to say."""
    speed = sample.speed
    said = sample.evaluation or {}
    problem, candidate = said.get("problem"), said.get("candidate")
    values: dict[str, str | float | None] = {
        "collection": sample.collection,
        "problem": sample.problem,
        "name": problem.get("name") if isinstance(problem, Mapping) else None,
        "sample": sample.index,
        "step": sample.step,
        "verdict": sample.verdict,
        "failure_mode": sample.mode.value,
        "judged": sample.is_judged,
        "communication": sample.communication,
        "backend": candidate.get("backend") if isinstance(candidate, Mapping) else None,
        "utilisation": sample.utilisation,
        "cost_usd": sample.cost_usd,
        "tokens": sample.tokens,
        "tokens_in": sample.tokens_in,
        "tokens_out": sample.tokens_out,
        "origin": sample.origin,
        **{name: said.get(name) for name in ("platform", "hardware", "ranks", "size", "dtype", "plan")},
    }
    if speed is not None:
        values |= {"decision": speed.decision, "speedup": speed.value}
        values |= {"speedup_low": speed.low, "speedup_high": speed.high}
    return {name: "" if (value := values.get(name)) is None else value for name in COLUMNS}


def share_document(share: Share | None) -> dict[str, float] | None:
    figure = _figure(share)
    return None if share is None or figure is None else figure | {"short": share.short}


def _shares(shares: Mapping[Any, Share] | None) -> dict[str, dict[str, float] | None] | None:
    return None if shares is None else {f"{key:g}": share_document(share) for key, share in shares.items()}


def _figure(figure: Figure | Share | None) -> dict[str, float] | None:
    if figure is None:
        return None
    return {"value": figure.value, "problems": figure.problems, **figure.interval._asdict()}
