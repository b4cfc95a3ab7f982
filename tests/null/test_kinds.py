"""Kinds of calls: every stage has its share of each, in an order that nobody can tell; draws are what was asked for."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pkb.judge.kinds import KindPlan
from pkb.problems.base import DTYPES, Problem
from pkb.problems.draw import Draw
from pkb.problems.registry import default_registry

SHARES = {"causal": 0.75, "full": 0.25}
WITH_KINDS = [problem for problem in default_registry().all() if problem.kinds]


def test_a_problem_without_kinds_has_calls_without_a_name() -> None:
    plan = KindPlan({})
    assert plan.round_robin(3) == plan.by_share(3) == ["", "", ""]


@pytest.mark.parametrize("sizes", [[1] * 8, [2] * 4, [5, 3], [25] * 8])
def test_times_have_their_share_of_each_kind_over_all_rounds(sizes: list[int]) -> None:
    for seed in range(20):
        plan = KindPlan(SHARES, random.Random(seed))
        made: Counter[str] = Counter()
        for size in sizes:
            made.update(plan.by_share(size))
            assert abs(made["full"] - 0.25 * made.total()) <= 1
    assert made["full"] == 0.25 * sum(sizes)


def test_checks_leave_no_kind_out_however_few_calls_there_are() -> None:
    """Also where a stage begins in the middle of a turn: five calls, then two at the odd size."""
    three = {"a": 0.8, "b": 0.1, "c": 0.1}
    for seed in range(20):
        plan = KindPlan(three, random.Random(seed))
        for _ in range(5):
            plan.round_robin(1)
        assert {kind for _ in range(3) for kind in plan.round_robin(1)} == set(three)
        assert Counter(plan.round_robin(6)) == {"a": 2, "b": 2, "c": 2}


def test_the_order_within_a_batch_differs() -> None:
    orders = {tuple(KindPlan(SHARES).by_share(8)) for _ in range(50)}
    assert len(orders) > 5


def draw(problem: Problem, call: int, kind: str = "") -> Draw:
    return Draw(
        secret=b"s", call=call, rank=0, world_size=4, size=problem.sizes["tiny"], dtype=DTYPES[problem.default_dtype],
        device=torch.device("cpu"), layout=problem.layout, kind=kind,
    )  # fmt: skip


@pytest.mark.parametrize("problem", WITH_KINDS, ids=lambda problem: problem.stem)
def test_kinds_differ_in_arguments_that_are_no_data(problem: Problem) -> None:
    """What a kind decides shows in a scalar or a shape, in every call, and nowhere depends on the call's own randomness."""
    assert sum(problem.kinds.values()) == pytest.approx(1.0)
    assert min(problem.kinds.values()) > 0
    seen: dict[str, set[str]] = {}
    for kind in problem.kinds:
        for call in range(6):
            arguments = problem.inputs(draw(problem, call, kind))
            seen.setdefault(kind, set()).add(repr([_outline(value) for value in arguments.values()]))
    if problem.id in (67, 85):
        return  # the kind is in the data, or in the shape of another rank's: see below
    first, *others = seen.values()
    assert all(first.isdisjoint(other) for other in others)


def _outline(value: object) -> object:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else value if isinstance(value, int | float) else None


SHOWS: dict[int, tuple[str, Callable[[list[Any]], bool]]] = {
    23: ("no_sum_gradient", lambda ranks: all(a["grad_loss_sum"] is None for a in ranks)),
    67: ("one_has_none", lambda ranks: min(len(a["idx"]) for a in ranks) == 0),
    76: ("no_bias", lambda ranks: all(a["bias"] is None for a in ranks)),
    85: ("empty_shards", lambda ranks: [len(a["local_shard"]) > 0 for a in ranks] == [True, False, True, False]),
    87: ("no_bias", lambda ranks: all(a["bias"] is None for a in ranks)),
}
"""By problem, a kind and what a kernel that does not expect it fails on."""


@pytest.mark.parametrize("number", SHOWS)
def test_whoever_is_wrong_for_a_kind_is_wrong_in_all_its_calls_and_no_others(number: int) -> None:
    """With checks that leave no kind out, every evaluation sees it; drawn by chance, one of some hundred did not."""
    problem, (rare, shows) = default_registry().get(number), SHOWS[number]
    for kind in problem.kinds:
        for call in range(8):
            asked = vars(draw(problem, call, kind))
            assert shows([problem.inputs(Draw(**{**asked, "rank": rank})) for rank in range(4)]) is (kind == rare)


def test_reversed_shards_are_reversed() -> None:
    problem = default_registry().get("85")
    for call in range(4):
        last = [
            problem.inputs(Draw(**{**vars(draw(problem, call, kind)), "rank": 3}))["local_shard"]
            for kind in ("reversed", "mixed")
        ]
        assert all(isinstance(shard, torch.Tensor) for shard in last)
        means = [float(shard.float().mean()) for shard in last if isinstance(shard, torch.Tensor) and shard.numel()]
        assert not means or means[0] < -8 < means[1]


@pytest.mark.parametrize("problem", WITH_KINDS, ids=lambda problem: problem.stem)
def test_a_draw_that_is_told_nothing_has_all_kinds(problem: Problem) -> None:
    kinds = Counter(draw(problem, call).kind_of(problem.kinds) for call in range(200))
    for kind, share in problem.kinds.items():
        assert abs(kinds[kind] - 200 * share) < 40
