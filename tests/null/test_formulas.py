"""Intervals held against docs/measuring.md, each computed here another way than the judge does it."""

import math
import random
import re
import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest

from pkb.judge.timing.statistics import Paired, estimate, student, trimmed_mean, window_ratio

ERROR = 0.01


def kept(values: Sequence[float]) -> list[float]:
    """Without the fifth at either end."""
    cut = len(values) // 5
    return sorted(values)[cut : len(values) - cut]


def may_be(x: float, reference: Sequence[float], candidate: Sequence[float], empty: Sequence[float]) -> bool:
    """May reference - empty - x (candidate - empty) be 0? With a jackknife of that difference itself."""
    rounds = len(candidate)

    def difference(without: int | None) -> float:
        theirs, ours, nothing = (
            statistics.fmean(kept([us for n, us in enumerate(side) if n * rounds // len(side) != without]))
            for side in (reference, candidate, empty)
        )
        return theirs - nothing - x * (ours - nothing)

    left_out = [difference(without) for without in range(rounds)]
    middle = statistics.fmean(left_out)
    variance = (rounds - 1) / rounds * math.fsum((one - middle) ** 2 for one in left_out)
    return abs(difference(None)) <= student(1 - ERROR, len(kept(candidate)) - 1) * math.sqrt(variance)


@pytest.mark.parametrize(
    ("rounds", "repeats", "candidate_us"), [(4, 1, 100.0), (8, 3, 100.0), (11, 3, 80.0), (8, 3, 52.0)]
)
def test_the_windows_interval_is_every_ratio_that_may_be_true(rounds: int, repeats: int, candidate_us: float) -> None:
    source = random.Random(rounds)
    reference, candidate, empty = (
        [source.gauss(us, 3.0) for _ in range(count)]
        for us, count in ((130.0, repeats * rounds), (candidate_us, rounds), (50.0, repeats * rounds))
    )
    _, low, high = window_ratio(reference, candidate, empty, ERROR)
    assert (high == math.inf) == (candidate_us < 60.0), "nothing may be left of the candidate"
    near = [end * step for end in (low, high) if end < math.inf for step in (0.999, 1.001)]
    for x in [*near, *(math.exp(step / 20) for step in range(-60, 61))]:
        assert may_be(x, reference, candidate, empty) == (low <= x <= high), x


@pytest.mark.parametrize("count", [2, 4, 5, 9, 10, 23])
def test_a_trimmed_means_error_is_that_of_winsorised_values(count: int) -> None:
    source = random.Random(count)
    values = [source.gauss(1.0, 0.1) for _ in range(count)]
    values[0] = 50.0
    inner = kept(values)
    winsorised = [min(max(value, inner[0]), inner[-1]) for value in values]
    middle = statistics.fmean(winsorised)
    squares = math.fsum((value - middle) ** 2 for value in winsorised)
    error_of_mean = math.sqrt(squares / (len(inner) * (len(inner) - 1)))
    found = trimmed_mean(values, ERROR)
    assert found == pytest.approx((statistics.fmean(inner), student(1 - ERROR, len(inner) - 1) * error_of_mean))
    assert (found.half < 1.0) == (count >= 5), "one odd value has no part in it once a fifth is one value"


def test_the_example_of_the_page_is_what_the_judge_computes() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs" / "measuring.md").read_text().split())
    reference, candidate = (
        [[float(us) for us in cell.split()] for cell in re.findall(r"\d+ \d+ \d+", row)]
        for row in re.findall(r"\| (?:reference|candidate) ((?:\| \d+ \d+ \d+ )+)", page)
    )
    found = estimate(Paired(reference, candidate))
    by_rounds = math.log(found.rounds.high / found.rounds.value)
    value, low, high = found.ratio
    assert f"D = {math.log(value):.4f}: the speedup is {value:.3f}" in page
    assert f"t(3) = {student(1 - 0.025, 3):.2f}" in page
    assert f"gives {by_rounds:.4f}, the larger: h_R" in page
    assert f"= {found.start:.4f}. Hence h = {math.hypot(by_rounds, found.start):.4f}" in page
    assert f"the interval is {low:.3f} to {high:.3f}" in page
