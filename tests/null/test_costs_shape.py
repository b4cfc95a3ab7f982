"""Costs as functions: larger problems, wider elements and more ranks never cost less. Nothing is run here.

That a cost is right for one size, counted on real ranks, is the matter of tests/cpu/test_costs.py; here is what lets one
believe it for the sizes that are too large to count.
"""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from pkb.problems import default_registry
from pkb.problems.base import DTYPES, Problem
from pkb.types.cost import Cost

PROBLEMS = default_registry().all()
ROUNDING = 1 + 1e-9
OTHER_SHAPE = {
    75: "upstream's heads are four times as large as those of the model behind `real`",
    87: "upstream's layer has four times the channels of the one behind `real`",
}
"""Problems whose `real` size is larger in other ways than all of `paper`'s."""
NO_GRID_WHEN_ODD = {48, 62}
"""Problems whose ranks form a grid, but a single line where their number is odd: other traffic, not more of the same."""
every_problem = pytest.mark.parametrize("problem", PROBLEMS, ids=[p.stem for p in PROBLEMS])


def worlds(problem: Problem, *sizes: str) -> list[int]:
    """Numbers of ranks with which all of these sizes run."""
    runs = [w for w in problem.world_sizes if all(problem.why_not(s, w, problem.default_dtype) is None for s in sizes)]
    assert runs
    return runs


def cost_of(problem: Problem, size: str, world_size: int, dtype: str = "") -> Cost:
    return problem.cost(problem.sizes[size], world_size, DTYPES[dtype or problem.default_dtype].itemsize)


def figures(cost: Cost) -> dict[str, float]:
    return {
        "flops": cost.flops, "memory": cost.hbm_bytes, "sent": cost.link_sent_bytes, "received": cost.link_received_bytes,
    }  # fmt: skip


def shrunk(small: Cost, large: Cost) -> Iterator[str]:
    for name, figure in figures(large).items():
        if figure * ROUNDING < figures(small)[name]:
            yield f"{name} falls from {figures(small)[name]:.0f} to {figure:.0f}"


@every_problem
@pytest.mark.parametrize(("small", "large"), [("tiny", "paper"), ("paper", "real")])
def test_a_larger_size_costs_no_less(problem: Problem, small: str, large: str) -> None:
    if large == "real" and problem.id in OTHER_SHAPE:
        pytest.skip(OTHER_SHAPE[problem.id])
    for w in worlds(problem, small, large):
        assert not list(shrunk(cost_of(problem, small, w), cost_of(problem, large, w)))


@every_problem
def test_wider_elements_cost_no_less(problem: Problem) -> None:
    by_width = sorted(problem.dtypes, key=lambda dtype: DTYPES[dtype].itemsize)
    for w in worlds(problem, "paper"):
        for narrow, wide in pairwise(by_width):
            assert not list(shrunk(cost_of(problem, "paper", w, narrow), cost_of(problem, "paper", w, wide)))


@every_problem
@pytest.mark.parametrize("size", ["tiny", "paper", "real"])
def test_more_ranks_together_send_no_less(problem: Problem, size: str) -> None:
    runs = [w for w in worlds(problem, size) if w % 2 == 0 or problem.id not in NO_GRID_WHEN_ODD]
    for few, many in pairwise(runs):
        less, more = (w * cost_of(problem, size, w).typical_link_bytes for w in (few, many))
        assert more * ROUNDING >= less, f"{few} ranks send {less:.0f} bytes together, {many} send {more:.0f}"


@every_problem
def test_a_switch_helps_or_is_not_mentioned(problem: Problem) -> None:
    """Of eight ranks; a pair loses by it, since what is its own goes through the switch as well."""
    if 8 in worlds(problem, "real"):
        cost = cost_of(problem, "real", 8)
        if cost.switch_sent_bytes is not None and cost.switch_received_bytes is not None:
            through_switch = cost.switch_sent_bytes + cost.switch_received_bytes
            assert through_switch <= (cost.link_sent_bytes + cost.link_received_bytes) * ROUNDING


@every_problem
@pytest.mark.parametrize("size", ["tiny", "paper", "real", "odd"])
def test_the_mean_is_above_nothing_and_below_the_busiest(problem: Problem, size: str) -> None:
    """A mean above the most that a rank sends or receives would be wrong in one of the two; alone, a rank is the mean."""
    for w in worlds(problem, size):
        cost = cost_of(problem, size, w)
        pairs = (
            (cost.typical_flops, cost.flops),
            (cost.typical_hbm_bytes, cost.hbm_bytes),
            (cost.typical_link_bytes, min(cost.link_sent_bytes, cost.link_received_bytes)),
        )
        for mean, busiest in pairs:
            assert busiest / w <= mean * ROUNDING, "the busiest alone does more than all together"
            assert mean <= busiest * ROUNDING
        if cost.least_link_bytes is not None:
            assert cost.least_link_bytes <= cost.link_sent_bytes * ROUNDING


@every_problem
def test_one_step_at_least_and_none_alone(problem: Problem) -> None:
    for w in worlds(problem, "tiny"):
        cost = cost_of(problem, "tiny", w)
        assert (cost.phases >= 1) == (w > 1)
        assert (min(cost.link_sent_bytes, cost.link_received_bytes) > 0) == (w > 1)
