"""Two collections on the same problems: who solves what, who is faster, and is the difference more than chance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pkb.analysis.estimate import mcnemar
from pkb.analysis.samples import Sample, best, by_problem, judged_by_problem

SIGNIFICANT = 0.05

Answer = Literal["better", "worse", "same", "not compared"]


class Row(NamedTuple):
    problem: int
    answer: Answer
    """Of the second collection, seen from the first."""
    why: str
    first: Sample | None
    """The best correct sample of each side; None where it has none."""
    second: Sample | None


@dataclass(frozen=True)
class RunComparison:
    first: str
    second: str
    k: int
    rows: tuple[Row, ...]
    both: int
    """Problems that both solve."""
    only_first: int
    only_second: int
    neither: int
    p_value: float
    """Exact McNemar test on who solves what."""

    @property
    def compared(self) -> int:
        return self.both + self.only_first + self.only_second + self.neither

    def count(self, answer: Answer) -> int:
        return sum(row.answer == answer for row in self.rows)

    @property
    def summary(self) -> str:
        """One sentence, which never calls a difference real that the test does not."""
        if not self.compared:
            return f"{self.second} and {self.first} have no problem in common that is comparable in both"
        solved = f"{self.second} solves {self.both + self.only_second} of {self.compared} problems"
        other = f"{self.first} {self.both + self.only_first}"
        split = f"{self.only_second} only the former, {self.only_first} only the latter"
        if self.p_value >= SIGNIFICANT:
            word = "a difference that chance explains"
        else:
            word = (
                "more than chance explains"
                if self.only_second > self.only_first
                else "less, by more than chance explains"
            )
        faster = sum(row.answer == "better" and row.first is not None for row in self.rows)
        slower = sum(row.answer == "worse" and row.second is not None for row in self.rows)
        speed = f"of the {self.both} that both solve it is faster on {faster} and slower on {slower}"
        tries = "1 try each" if self.k == 1 else f"the best of {self.k} tries each"
        return f"{solved}, {other} ({split}; p = {self.p_value:.2g}, {tries}): {word}; {speed}"


def compare(first: Sequence[Sample], second: Sequence[Sample], *, k: int = 1) -> RunComparison:
    """The best of the first k judged samples of each problem on each side. A problem that one side lacks, that was not judged
    there, or that was another question there, is not compared.
    """
    ours, theirs = judged_by_problem(second), judged_by_problem(first)
    rows = []
    counts = {(True, True): 0, (True, False): 0, (False, True): 0, (False, False): 0}
    for problem in sorted(by_problem(first).keys() | by_problem(second).keys()):
        if problem not in ours or problem not in theirs:
            side = "second" if problem not in ours else "first"
            rows.append(Row(problem, "not compared", f"nothing judged in the {side} collection", None, None))
            continue
        if why := differing("question", [*theirs[problem][:k], *ours[problem][:k]]):
            rows.append(Row(problem, "not compared", why, None, None))
            continue
        one, two = best(theirs[problem][:k]), best(ours[problem][:k])
        counts[one is not None, two is not None] += 1
        answer, why = _answer(one, two)
        rows.append(Row(problem, answer, why, one, two))
    return RunComparison(
        first=_name(first),
        second=_name(second),
        k=k,
        rows=tuple(rows),
        both=counts[True, True],
        only_first=counts[True, False],
        only_second=counts[False, True],
        neither=counts[False, False],
        p_value=mcnemar(counts[True, False], counts[False, True]),
    )


def _answer(first: Sample | None, second: Sample | None) -> tuple[Answer, str]:
    if first is None and second is None:
        return "same", "neither solves it"
    if first is None:
        return "better", "only the second solves it"
    if second is None:
        return "worse", "only the first solves it"
    if first.speed is None or second.speed is None:
        return "same", "both solve it; not both were timed"
    if first.conditions != second.conditions:
        return "same", "both solve it; timed under different conditions"
    if why := differing("stock", [first, second]):
        return "same", f"both solve it; speeds are not comparable: {why}"
    if "unproven" in (first.speed.decision, second.speed.decision):
        return "same", "both solve it; a gain is unproven"
    if second.speed.low > first.speed.high:
        return "better", "faster: the intervals do not touch"
    if second.speed.high < first.speed.low:
        return "worse", "slower: the intervals do not touch"
    return "same", "both solve it; the intervals of their speedups overlap"


def differing(what: Literal["question", "stock"], samples: Sequence[Sample]) -> str:
    """In what these samples do not agree, in words: `judge 1 and 2`. Empty if they do."""
    said: dict[str, dict[str, None]] = {}
    for sample in samples:
        for name, word in getattr(sample, what).items():
            said.setdefault(name, {})[word] = None
    return "; ".join(f"{name} {' and '.join(words)}" for name, words in said.items() if len(words) > 1)


def _name(samples: Sequence[Sample]) -> str:
    return samples[0].collection if samples else "(empty)"
