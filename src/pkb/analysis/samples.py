"""A sample: one answer to one problem, with what the judge said about it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from pkb.analysis.modes import FailureMode, failure_mode
from pkb.types.document import Speedup
from pkb.types.plan import PLANS, PUBLISHED
from pkb.types.stock import Against
from pkb.types.timing import tells_speed
from pkb.types.verdict import Communication

Amount = TypeVar("Amount", int, float)


@dataclass(frozen=True)
class Sample:
    collection: str
    """What is scored together: a model, a run, a folder."""
    problem: int
    index: int
    """Which try at this problem, from 0; only its order counts."""
    evaluation: Mapping[str, Any] | None
    """The verdict's JSON, or None where no candidate came back at all."""
    step: int | None = None
    """The step of an agent loop that it came from."""
    cost_usd: float | None = None
    tokens: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    """Of all its steps; a file may name the sum only."""
    origin: str = ""
    """File and line it was read from."""
    as_published: bool = False
    """Counted by the published protocol, which looks at a result before the next call: a reused output is right."""
    against: Against = "baseline"
    """Which reading its speed is: against the problem's baseline, or its reference, as published results are."""

    @cached_property
    def mode(self) -> FailureMode:
        return FailureMode.NO_ANSWER if self.evaluation is None else failure_mode(self.evaluation)

    @property
    def is_judged(self) -> bool:
        return self.mode.is_judged

    @property
    def is_correct(self) -> bool:
        return self.mode is FailureMode.CORRECT or (self.as_published and self.is_reused)

    @property
    def is_reused(self) -> bool:
        return self.mode is FailureMode.REUSED_OUTPUT

    @property
    def verdict(self) -> str:
        return "no_answer" if self.evaluation is None else str(self.evaluation["verdict"])

    @property
    def communication(self) -> str:
        return str((self.evaluation or {}).get("communication") or Communication.UNKNOWN.value)

    @property
    def is_custom(self) -> bool:
        """Correct by kernels of its own, not by calling the library that it was to replace."""
        return self.is_correct and self.communication == Communication.CUSTOM

    @cached_property
    def speed(self) -> Speedup | None:
        """None where it is not correct or was not timed so, or on a CPU. The times of a rejected candidate are not believed."""
        if self._timing is None or self.evaluation is None:
            return None
        return Speedup.against(self.reading, self.evaluation)

    @property
    def reading(self) -> Against:
        """What its speed is against. The published benchmark has no baselines, so by its plan there is one reading."""
        return "reference" if (self.evaluation or {}).get("plan") == PUBLISHED else self.against

    @property
    def utilisation(self) -> float | None:
        """The roofline's ideal time over the candidate's; None where nothing is known of the hardware."""
        return self._of_roofline("candidate_utilisation")

    @property
    def reference_utilisation(self) -> float | None:
        return self._of_roofline("reference_utilisation")

    @property
    def question(self) -> dict[str, str]:
        """What was asked, and by which rules it was judged: right and wrong are comparable where all of it is the same."""
        said = self.evaluation or {}
        suite, problem = (said.get(name) or {} for name in ("suite", "problem"))
        plan = PLANS.get(str(said.get("plan")))
        return {
            "problem version": str(problem.get("version", 1)),
            "judge": str(suite.get("judge", "unversioned")),
            "tolerance": "the original benchmark's"
            if plan is not None and plan.upstream_tolerance
            else "the problem's",
        }

    @property
    def stock(self) -> dict[str, str]:
        """What its speed is against: besides the conditions, speeds are comparable where this is the same."""
        version = ((self.evaluation or {}).get("problem") or {}).get("baseline_version")
        if version is None:
            return {"timed against": "the reference, for want of a baseline"}
        return {"timed against": f"baseline version {version}" if self.reading == "baseline" else "the reference"}

    @property
    def conditions(self) -> tuple[str, ...]:
        """Times are comparable only where all of these are the same, and `question` and `stock`."""
        said = self.evaluation or {}
        return tuple(str(said.get(name)) for name in ("platform", "hardware", "ranks", "size", "dtype"))

    @property
    def _timing(self) -> Mapping[str, Any] | None:
        said = self.evaluation or {}
        timing = said.get("timing") if tells_speed(str(said.get("platform"))) else None
        return timing if self.is_correct and isinstance(timing, Mapping) else None

    def _of_roofline(self, name: str) -> float | None:
        roofline = (self._timing or {}).get("roofline")
        value = roofline.get(name) if isinstance(roofline, Mapping) else None
        return None if value is None else float(value)


def by_problem(samples: Iterable[Sample]) -> dict[int, list[Sample]]:
    """Samples of each problem in the order of their index, problems in the order of their ids."""
    groups: dict[int, list[Sample]] = {}
    for sample in sorted(samples, key=lambda sample: (sample.problem, sample.index)):
        groups.setdefault(sample.problem, []).append(sample)
    return groups


def judged_by_problem(samples: Iterable[Sample]) -> dict[int, list[Sample]]:
    """The same without samples that the judge could not judge, and without problems of which none is left."""
    return by_problem(sample for sample in samples if sample.is_judged)


def best(samples: Iterable[Sample]) -> Sample | None:
    """The correct sample whose interval begins highest; untimed and unproven ones come last. None if none is correct."""
    correct = [sample for sample in samples if sample.is_correct]
    return max(correct, key=_merit, default=None)


def _merit(sample: Sample) -> float:
    return sample.speed.low if sample.speed and sample.speed.decision != "unproven" else -math.inf


def total(amounts: Iterable[Amount | None]) -> Amount | None:
    """The sum of those that are known; None where none is."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known[1:], known[0]) if known else None
