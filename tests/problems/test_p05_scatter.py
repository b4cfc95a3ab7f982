"""Problem 5, scatter: the source's pieces, one a rank."""

import pytest
import torch
from collective_checks import numbered, solve
from harness import ModelTests, Spec
from on_ranks import Arguments, Array, Worlds, arrays

from world import RankError


def scatter(ranks: list[Arguments]) -> list[Array]:
    whole = arrays(ranks, "tensor")[ranks[0]["src"]]
    assert whole.shape[0] == len(ranks)
    return [whole[r] for r in range(len(ranks))]


class TestModel(ModelTests):
    spec = Spec(
        5,
        scatter,
        worlds=(1, 2, 3, 4),
        ordered=True,
        calls=(1, 2),
        refused=[("src is 7", lambda _: {"src": 7})],
    )


def test_an_axis_of_several_rows_is_kept_and_one_of_one_dropped(world: Worlds) -> None:
    whole = numbered(9, (6, 5))
    outputs = world(2).call(solve, 5, [[torch.zeros(3, 5), 1], [whole, 1]])
    assert torch.equal(outputs[0], whole[:3])
    assert torch.equal(outputs[1], whole[3:])
    outputs = world(2).call(solve, 5, [[whole[:2], 0], [torch.zeros(5), 0]])
    assert torch.equal(outputs[0], whole[0])
    assert torch.equal(outputs[1], whole[1])


def test_uneven_rows_are_refused_on_the_source(world: Worlds) -> None:
    square = torch.ones(3, 3)
    with pytest.raises(RankError, match="rank 1: ValueError: a tensor \\(3, 3\\)"):
        world(2).call(solve, 5, [[square, 1], [square, 1]])
