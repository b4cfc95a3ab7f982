"""Rare variants that change what a kernel must do: no evaluation, however few calls it makes, is without one of each."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pkb.judge.budgets import LEAST_CALLS
from pkb.judge.stages.races import SCENARIOS
from pkb.problems.base import DTYPES
from pkb.problems.draw import Draw
from pkb.problems.registry import default_registry
from pkb.types.plan import plan

QUICK = plan("quick")
FEWEST = min(QUICK.trials, LEAST_CALLS) + QUICK.odd_trials + LEAST_CALLS * sum(not one.gpu_only for one in SCENARIOS)
"""Calls of plan quick with 2 ranks where arguments are so large that every stage makes the fewest: in a scenario so many, or
one for each rank that is told late. All are compared, and have consecutive numbers."""


def draw(call: int, *, secret: bytes = b"s", number: int = 1, rank: int = 0, even: bool = False) -> Draw:
    problem = default_registry().get(number)
    return Draw(
        secret=secret, call=call, rank=rank, world_size=4, size=problem.sizes["tiny"], device=torch.device("cpu"),
        dtype=DTYPES[problem.default_dtype], layout=problem.layout, even=even,
    )  # fmt: skip


def test_every_turn_has_each_option_once_in_an_order_of_its_own() -> None:
    options = ("a", "a", "b", "c")
    turns = [tuple(draw(4 * turn + i).in_turn("letters", options) for i in range(4)) for turn in range(40)]
    assert all(sorted(turn) == sorted(options) for turn in turns)
    assert len(set(turns)) == 12, "all orders there are"
    others = [draw(call, secret=b"t").in_turn("letters", options) for call in range(160)]
    assert others != [letter for turn in turns for letter in turn], "nobody knows the next who does not know the secret"
    assert draw(7).in_turn("letters", options) == draw(7, rank=3).in_turn("letters", options)


def test_two_variants_are_independent() -> None:
    both = {(draw(call).in_turn("one", "abc"), draw(call).in_turn("two", "abc")) for call in range(60)}
    assert len(both) == 9


def test_the_published_benchmark_has_the_first() -> None:
    assert {draw(call, even=True).in_turn("letters", "abc") for call in range(9)} == {"a"}


def cuts_nothing_but_is_given(arguments: dict[str, Any]) -> bool:
    """Who cuts to whatever length is given is wrong here, and only here."""
    seq = next(t for t in arguments.values() if isinstance(t, torch.Tensor)).shape[arguments["seq_dim"]]
    length = arguments["unpadded_dim_size"]
    return bool(length) and length % 4 == 0 and length < 4 * seq


VARIANTS: list[tuple[int, str, Callable[[dict[str, Any]], bool], float]] = [
    (36, "a multiple of W cuts nothing", cuts_nothing_but_is_given, 0.2),
    (38, "a multiple of W cuts nothing", cuts_nothing_but_is_given, 0.2),
    (38, "0 cuts nothing", lambda a: a["unpadded_dim_size"] == 0, 0.2),
    (38, "an axis more", lambda a: not a["restore_shape"], 1 / 3),
    (70, "strides in staggered order", lambda a: a["stride_per_key"] is not None and a["stagger"] == 2, 0.2),
    (70, "stagger alone", lambda a: a["stride_per_key"] is None and a["stagger"] == 2, 0.2),
    (77, "large scores", lambda a: a["query"].float().std() > 2, 0.5),
]


@pytest.mark.parametrize(("number", "words", "has", "share"), VARIANTS, ids=[f"{v[0]}: {v[1]}" for v in VARIANTS])
def test_no_evaluation_is_without(number: int, words: str, has: Callable[[dict[str, Any]], bool], share: float) -> None:
    inputs = default_registry().get(number).inputs
    seen = [has(inputs(draw(call, number=number))) for call in range(60 + FEWEST)]
    assert all(any(seen[first : first + FEWEST]) for first in range(60))
    assert sum(seen[:60]) == round(60 * share)
