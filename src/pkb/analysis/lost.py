"""What a candidate that is right by the published protocol loses by ours, told by the evidence of the second verdict.

The plan `published` and the others judge the same file. Where it passes the first and fails the second, the verdict says which
of the differences it met: what was checked before it failed, and how the result differs.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from pkb.analysis.modes import part_of
from pkb.analysis.samples import Sample
from pkb.types.difference import DifferenceKind
from pkb.types.failure import FailureKind
from pkb.types.plan import PUBLISHED
from pkb.types.verdict import Stage, Verdict

AS_PUBLISHED = " (as published)"
"""Behind the name of a collection: its samples that were judged by the plan `published`."""
NEAR_TOLERANCE = 10.0
"""Errors of up to so many of our tolerances are a matter of tolerance: the published one is all-close with 1e-2, which for
sums of random terms is about that much wider."""


class Loss(StrEnum):
    UNEVEN = "uneven_inputs"
    ODD = "odd_sizes"
    RANKS = "other_ranks"
    LATER_CALL = "later_call"
    REUSED_OUTPUT = "reused_output"
    RACE = "race"
    TOLERANCE = "tolerance"
    ARGUMENTS = "arguments"
    FORM = "form"
    BITS = "bits"
    RULE = "rule"
    NOT_JUDGED = "not_judged"
    OTHER = "other"

    @property
    def words(self) -> str:
        return WORDS[self]


WORDS: Mapping[Loss, str] = {
    Loss.UNEVEN: "fails on uneven or unusual inputs at the same size",
    Loss.ODD: "fails at a size that nothing divides",
    Loss.RANKS: "fails with another number of ranks",
    Loss.LATER_CALL: "right in the first call, fails in a later one on other inputs",
    Loss.REUSED_OUTPUT: "returns memory that its next call overwrites",
    Loss.RACE: "fails when calls are queued or a rank comes late",
    Loss.TOLERANCE: "outside of the tolerance of the dtype, inside of the published one",
    Loss.ARGUMENTS: "changes arguments, does not change those that it must, or returns memory of one",
    Loss.FORM: "another dtype or structure than the reference returns",
    Loss.BITS: "not the same bits on all ranks, where the problem promises them",
    Loss.RULE: "breaks a rule",
    Loss.NOT_JUDGED: "could not be judged",
    Loss.OTHER: "otherwise",
}
_CASE = re.compile(r"size (\w+), (\d+) ranks(?:, trial (\d+))?")


def loss_of(evaluation: Mapping[str, Any]) -> Loss:
    """Why a candidate that passes the published protocol got this verdict, which is not `correct`."""
    verdict, stage = str(evaluation.get("verdict")), str(evaluation.get("stage"))
    if verdict in (Verdict.UNSUPPORTED, Verdict.HARNESS_ERROR):
        return Loss.NOT_JUDGED
    if verdict == Verdict.REUSED_OUTPUT:
        return Loss.REUSED_OUTPUT
    if verdict == Verdict.REJECTED:
        kind = part_of(evaluation, "failure").get("kind")
        return Loss.ARGUMENTS if kind in (FailureKind.CHANGED_ARGUMENTS, FailureKind.ALIASED_OUTPUT) else Loss.RULE
    if verdict == Verdict.RACE or stage in (Stage.RACES, Stage.TIMING):
        return Loss.RACE
    if stage != Stage.CORRECTNESS:
        return Loss.OTHER
    return _of_mismatch(evaluation) if verdict == Verdict.WRONG else _of_interruption(evaluation)


def _of_mismatch(evaluation: Mapping[str, Any]) -> Loss:
    mismatch = part_of(evaluation, "mismatch")
    if str(mismatch.get("output", "")).startswith("argument changed in place"):
        return Loss.ARGUMENTS
    difference = mismatch.get("difference")
    if difference in (DifferenceKind.DTYPE, DifferenceKind.STRUCTURE):
        return Loss.FORM
    if difference == DifferenceKind.BITS:
        return Loss.BITS
    case = _CASE.search(str(mismatch.get("case", "")))
    if case and int(case[2]) != evaluation.get("ranks"):
        return Loss.RANKS  # at `odd` too, where three ranks have no other size
    if case and case[1] != evaluation.get("size") and case[1] == "odd":
        return Loss.ODD
    ratio = mismatch.get("error_ratio")
    if difference == DifferenceKind.VALUES and isinstance(ratio, int | float) and ratio <= NEAR_TOLERANCE:
        return Loss.TOLERANCE
    return Loss.LATER_CALL if case and int(case[3] or 0) > 0 else Loss.UNEVEN


def _of_interruption(evaluation: Mapping[str, Any]) -> Loss:
    """An exception, a crash or a deadlock while calls were checked one by one: what had been passed says where it was."""
    passed = [str(check) for check in evaluation.get("checks") or ()]
    if any(check.startswith(("races:", "not timed")) for check in passed):
        return Loss.RANKS  # all stages of the first world are over
    if any(" calls at " in check and " with " in check for check in passed):
        return Loss.ODD
    return Loss.UNEVEN


class LostSample(NamedTuple):
    problem: int
    sample: int
    loss: Loss
    verdict: str


@dataclass(frozen=True)
class PlanComparison:
    """Of the candidates that were judged by both plans, and by the same rules."""

    candidates: int
    other_rules: int
    """Judged by both plans, but of another version of the problem or by another version of the judge: in no figure here."""
    right_as_published: int
    right: int
    faster_as_published: int
    """By point estimate, as published."""
    faster: int
    """Proven."""
    untimed_as_published: int
    untimed: int
    """Right ones that nobody has timed, and that are in neither count."""
    only_by_ours: int
    """Right, and not right as published: its tolerance fails what ours accepts, or its one call was unlucky."""
    lost: tuple[LostSample, ...]

    @property
    def counts(self) -> dict[Loss, int]:
        counted = Counter(sample.loss for sample in self.lost)
        return {loss: counted[loss] for loss in Loss if counted[loss]}


def is_published_plan(sample: Sample) -> bool:
    return (sample.evaluation or {}).get("plan") == PUBLISHED


def compare_plans(samples: Sequence[Sample], as_published: Sequence[Sample]) -> PlanComparison | None:
    """`samples` by any other plan, `as_published` by that one; None where no candidate is in both."""
    beside = {identity(sample): sample for sample in as_published}
    both = [(sample, other) for sample in samples if (other := beside.get(identity(sample))) is not None]
    if not both:
        return None
    pairs = [(sample, other) for sample, other in both if rules_of(sample) == rules_of(other)]
    lost = [
        LostSample(sample.problem, sample.index, loss_of(sample.evaluation or {}), sample.verdict)
        for sample, other in pairs
        if other.is_correct and not sample.is_correct
    ]
    return PlanComparison(
        candidates=len(pairs),
        other_rules=len(both) - len(pairs),
        right_as_published=sum(other.is_correct for _, other in pairs),
        right=sum(sample.is_correct for sample, _ in pairs),
        faster_as_published=sum(is_faster(other, proven=False) for _, other in pairs),
        faster=sum(is_faster(sample, proven=True) for sample, _ in pairs),
        untimed_as_published=sum(other.is_correct and other.speed is None for _, other in pairs),
        untimed=sum(sample.is_correct and sample.speed is None for sample, _ in pairs),
        only_by_ours=sum(sample.is_correct and not other.is_correct for sample, other in pairs),
        lost=tuple(lost),
    )


def is_faster(sample: Sample, *, proven: bool) -> bool:
    """By its interval, or by point estimate as published results are; a gain that the wall clock denies is neither."""
    return sample.speed is not None and sample.speed.beats(1, proven=proven)


def rules_of(sample: Sample) -> tuple[str, str]:
    """Versions by which it was judged: verdicts by others are not compared."""
    question = sample.question
    return question["problem version"], question["judge"]


def identity(sample: Sample) -> tuple[int, str]:
    """The same file, or where a verdict does not say which, the same try."""
    candidate = (sample.evaluation or {}).get("candidate")
    sha = candidate.get("sha256") if isinstance(candidate, Mapping) else None
    return sample.problem, str(sha or sample.index)
