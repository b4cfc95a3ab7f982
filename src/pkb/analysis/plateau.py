"""How many problems an agent has solved after each step: the curve that flattens where more steps help no more."""

from collections.abc import Iterable
from typing import NamedTuple


class StepOutcome(NamedTuple):
    problem: int
    step: int
    """From 0."""
    correct: bool
    faster: bool


class PlateauPoint(NamedTuple):
    steps: int
    """Answers that each problem has had, or all that its agent gave."""
    correct: int
    faster: int


def plateau(outcomes: Iterable[StepOutcome]) -> list[PlateauPoint]:
    """Problems with a correct candidate, and with a faster one, among the first so many steps. It never falls."""
    first_correct: dict[int, int] = {}
    first_faster: dict[int, int] = {}
    last = -1
    for problem, step, correct, faster in outcomes:
        last = max(last, step)
        for reached, found in ((correct, first_correct), (correct and faster, first_faster)):
            if reached:
                found[problem] = min(step, found.get(problem, step))
    return [
        PlateauPoint(
            step + 1,
            sum(at <= step for at in first_correct.values()),
            sum(at <= step for at in first_faster.values()),
        )
        for step in range(last + 1)
    ]
