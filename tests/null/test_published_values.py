"""Plan `published` has the published benchmark's kind of values: other contents in the same places, for that plan alone."""

from typing import Any

import pytest
import torch

from pkb.problems.base import DTYPES, Problem, tensors_in
from pkb.problems.draw import Arguments, Draw
from pkb.problems.registry import default_registry

WITH_VALUES = [problem for problem in default_registry().all() if problem.published is not None]
RANKS = 4


def draw_of(problem: Problem, *, rank: int, even: bool, secret: bytes = b"s", device: str = "cpu") -> Draw:
    size = next(s for s in ("tiny", "paper") if problem.why_not(s, RANKS, problem.dtypes[0]) is None)
    return Draw(
        secret=secret, call=3, rank=rank, world_size=RANKS, size=problem.sizes[size], dtype=DTYPES[problem.dtypes[0]],
        device=torch.device(device), layout=problem.layout, even=even,
    )  # fmt: skip


def described(arguments: Arguments) -> list[Any]:
    tensors = [(tuple(t.shape), t.dtype, t.stride(), t.device.type) for t in tensors_in(arguments)]
    return [list(arguments), [type(value) for value in arguments.values()], tensors]


def same(a: Arguments, b: Arguments) -> bool:
    pairs = zip(tensors_in(a), tensors_in(b), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("problem", WITH_VALUES, ids=[problem.stem for problem in WITH_VALUES])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_other_values_in_the_same_places(problem: Problem, device: str) -> None:
    for rank in range(RANKS):
        draw = draw_of(problem, rank=rank, even=True, device=device)
        ours, published = problem.inputs(draw), problem.arguments(draw, as_published=True)
        assert described(published) == described(ours)
        if device == "cpu":
            assert all(bool(torch.isfinite(t.float()).all()) for t in tensors_in(published))


@pytest.mark.parametrize("problem", WITH_VALUES, ids=[problem.stem for problem in WITH_VALUES])
def test_only_where_asked_for(problem: Problem) -> None:
    """Calls that are even for the race detector's sake have our values."""
    draws = [draw_of(problem, rank=rank, even=True) for rank in range(RANKS)]
    assert all(same(problem.arguments(draw, as_published=False), problem.inputs(draw)) for draw in draws)
    assert not all(same(problem.arguments(draw, as_published=True), problem.inputs(draw)) for draw in draws), "no use"


@pytest.mark.parametrize("problem", WITH_VALUES, ids=[problem.stem for problem in WITH_VALUES])
def test_drawn_again_they_are_the_same(problem: Problem) -> None:
    draws = [draw_of(problem, rank=rank, even=True) for rank in range(RANKS)]
    assert all(
        same(problem.arguments(draw, as_published=True), problem.arguments(draw, as_published=True)) for draw in draws
    )
