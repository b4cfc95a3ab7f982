"""Exact truths are the reference's values in float64, and take less memory than it does."""

import inspect

import pytest
from exact_runs import run_exact
from on_ranks import Worlds

from pkb.problems import default_registry
from pkb.problems.base import Problem

WITH_EXACT = [problem for problem in default_registry().all() if problem.exact is not None]
ERROR = 1e-12
"""Of sums in another order; a step in float32 would be at 1e-7."""


def test_what_no_longer_fits_has_an_exact_truth() -> None:
    assert {problem.id for problem in WITH_EXACT} == {14, 25, 31, 32, 40, 41, 42, 43, 44, 57, 71, 72}


CASES = [
    (problem, ranks)
    for ranks in (3, 4)
    for problem in WITH_EXACT
    if problem.why_not("odd", ranks, problem.default_dtype) is None
]


@pytest.mark.parametrize(("problem", "world_size"), CASES, ids=lambda value: getattr(value, "stem", value))
def test_exact_truth_is_the_reference_in_less_memory(world: Worlds, problem: Problem, world_size: int) -> None:
    """At `odd`, where blocks are unequal; `pkb lint` does the same at `tiny`. Both have as many blocks as production sizes."""
    calls = tuple(enumerate(problem.kinds or [""]))
    for own in world(world_size).call(run_exact, problem.id, "odd", calls):
        assert all(run.native for run in own)
        assert max(run.error for run in own) < ERROR
        assert all(run.exact_bytes < run.reference_bytes for run in own), own


@pytest.mark.parametrize("problem", WITH_EXACT, ids=lambda problem: problem.stem)
def test_exact_truth_is_called_as_the_reference_is(problem: Problem) -> None:
    assert problem.exact is not None
    assert inspect.signature(problem.exact).parameters == inspect.signature(problem.reference).parameters


def test_numbers_of_ranks_that_fit_are_numbers_that_run() -> None:
    for problem in default_registry().all():
        for size, fitting in problem.fits_one_gpu.items():
            assert fitting
            assert set(fitting) < set(problem.world_sizes), problem.stem
            assert any(problem.why_not(size, ranks, problem.default_dtype) is None for ranks in fitting)
