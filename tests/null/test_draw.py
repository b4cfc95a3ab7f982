"""What a draw depends on, and what it does not: the ground on which inputs are secret and ranks agree."""

from typing import Any

import pytest
import torch

from pkb.problems.draw import Draw


def draw(**changes: Any) -> Draw:
    given: dict[str, Any] = {
        "secret": b"secret", "call": 3, "rank": 1, "world_size": 4, "size": {}, "dtype": torch.float32,
        "device": torch.device("cpu"),
    }  # fmt: skip
    return Draw(**(given | changes))


def normal(source: Draw, name: str = "x", **more: Any) -> torch.Tensor:
    return source.normal(name, (64,), **more)


def test_the_same_draw_gives_the_same_values_in_any_order() -> None:
    first, second = draw(), draw()
    second.integers("y", (5,), 0, 9)
    assert torch.equal(normal(first), normal(second))
    assert torch.equal(normal(first), normal(first))


@pytest.mark.parametrize("change", [{"rank": 2}, {"call": 4}, {"secret": b"other"}, {"secret": b""}])
def test_another_rank_call_or_secret_gives_other_values(change: dict[str, Any]) -> None:
    here, there = draw(), draw(**change)
    assert not torch.isclose(normal(here), normal(there)).any()
    assert here.random("r").random() != there.random("r").random()
    assert not torch.equal(here.permutation("p", 50), there.permutation("p", 50))


def test_another_name_gives_other_values() -> None:
    assert not torch.isclose(normal(draw(), "x"), normal(draw(), "z")).any()


def test_a_key_replaces_the_rank() -> None:
    for key in ("all", 7, ("tp", 0)):
        assert torch.equal(normal(draw(rank=0), key=key), normal(draw(rank=3), key=key))
        assert draw(rank=0).random("r", key=key).random() == draw(rank=3).random("r", key=key).random()
    assert not torch.isclose(normal(draw(), key="all"), normal(draw(), key="none")).any()


def test_a_key_that_looks_like_the_rank_is_not_the_rank() -> None:
    """Else what one group shares would be some rank's private data."""
    assert not torch.isclose(normal(draw(rank=1), key=1), normal(draw(rank=1))).any()


def test_values_follow_their_distribution() -> None:
    source = draw()
    values = source.normal("n", (100_000,), scale=3.0)
    assert abs(float(values.mean())) < 0.05
    assert abs(float(values.std()) - 3) < 0.05
    flat = source.uniform("u", (100_000,), -2, 6)
    assert -2 <= float(flat.min()) < -1.9
    assert 5.9 < float(flat.max()) <= 6
    assert source.integers("i", (1000,), 4, 7).unique().tolist() == [4, 5, 6]
    assert sorted(source.permutation("p", 20).tolist()) == list(range(20))


def test_values_are_rounded_once_to_the_dtype() -> None:
    assert torch.equal(normal(draw(dtype=torch.bfloat16)), normal(draw()).bfloat16())
    wide = normal(draw(dtype=torch.float64))
    assert not torch.equal(wide, wide.float().double()), "float64 carries no more than float32"
    assert normal(draw(), dtype=torch.float16).dtype == torch.float16


def test_nothing_is_drawn_on_the_meta_device() -> None:
    source = draw(device=torch.device("meta"))
    drawn = [
        normal(source),
        source.uniform("u", (3,), 0, 1),
        source.integers("i", (3,), 0, 5),
        source.permutation("p", 9),
    ]
    assert all(tensor.is_meta for tensor in drawn)
    assert [tuple(tensor.shape) for tensor in drawn] == [(64,), (3,), (3,), (9,)]
    assert source.random("r", key="all").random() == draw(rank=0).random("r", key="all").random()


def test_coordinates_follow_the_layout() -> None:
    assert draw(rank=3).coordinate("world") == (3, 4)
    assert [draw(rank=r, layout="tp_cp").coordinate("tp") for r in range(4)] == [(0, 2), (1, 2), (0, 2), (1, 2)]
    assert [draw(rank=r, layout="tp_cp").coordinate("cp") for r in range(4)] == [(0, 2), (0, 2), (1, 2), (1, 2)]
