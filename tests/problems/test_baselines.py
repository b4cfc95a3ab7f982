"""Every baseline passes the comparison that candidates pass, on real ranks, in every kind of call."""

import inspect

import pytest
from on_ranks import Worlds
from stock_runs import run_baseline, run_with_many_ties

from pkb.problems import default_registry
from pkb.problems.base import Problem

PROBLEMS = list(default_registry().all())
WITH_BASELINE = [problem for problem in PROBLEMS if problem.baseline is not None]
HONEST = 0.8
"""How much of the tolerance a baseline may use, as the references of harness.py."""
LARGEST_FLOPS, LARGEST_BYTES = 2e9, 8e6
"""What a rank may compute, and be given, at `paper` and `decode` for the case to be run on a CPU."""


def cases() -> list[tuple[int, int, str, str]]:
    """Problem, ranks, size, dtype: the default dtype everywhere, float32 with the smallest size."""
    found = []
    for problem in WITH_BASELINE:
        wanted = [(size, problem.default_dtype) for size in ("tiny", "odd", "paper", "decode") if size in problem.sizes]
        wanted += [("tiny", "fp32")] if "fp32" in problem.dtypes[1:] else []
        for world_size in (2, 3, 4):
            for size, dtype in wanted:
                if problem.why_not(size, world_size, dtype) is None and affordable(problem, size, world_size):
                    found.append((problem.id, world_size, size, dtype))
    return found


def affordable(problem: Problem, size: str, world_size: int) -> bool:
    if size in ("tiny", "odd"):
        return True
    flops = problem.cost(problem.sizes[size], world_size, 2).flops
    return flops <= LARGEST_FLOPS and problem.argument_bytes(size, world_size, problem.default_dtype) <= LARGEST_BYTES


@pytest.mark.parametrize(("number", "world_size", "size", "dtype"), cases())
def test_baseline_passes(world: Worlds, number: int, world_size: int, size: str, dtype: str) -> None:
    problem = default_registry().get(number)
    kinds = list(problem.kinds) or [""]
    calls = tuple((call, kinds[call % len(kinds)]) for call in range(2 if size == "paper" else 4))
    by_rank = world(world_size).call(run_baseline, number, size, dtype, calls)
    for index, call in enumerate(calls):
        assert [own[index].fault for own in by_rank] == [""] * world_size, call
        assert max(own[index].ratio for own in by_rank) <= HONEST, call


def test_every_problem_has_a_baseline_or_says_why_not() -> None:
    for problem in PROBLEMS:
        assert (problem.baseline is None) == bool(problem.baseline_reason), problem.stem


@pytest.mark.parametrize("problem", WITH_BASELINE, ids=lambda problem: problem.stem)
def test_baseline_is_called_as_the_reference_is(problem: Problem) -> None:
    assert problem.baseline is not None
    own, reference = inspect.signature(problem.baseline), inspect.signature(problem.reference)
    assert own.parameters == reference.parameters
    assert inspect.getmodule(problem.baseline) is inspect.getmodule(problem.reference)


@pytest.mark.parametrize("number", [82, 83, 84])
def test_filters_are_right_where_ties_outnumber_what_is_sent(world: Worlds, number: int) -> None:
    assert max(world(3).call(run_with_many_ties, number)) < 1e-5
