"""Problem 36, Ulysses layout switch before attention: positions joined, heads shared out."""

from functools import partial

import torch
from harness import ModelTests, Spec
from model_ulysses import check_axes, check_lengths, unpad
from on_ranks import Arguments, Outputs, Worlds, joined

from pkb.problems import get


def to_heads(ranks: list[Arguments], mistake: bool = False) -> list[Outputs]:
    first, w = ranks[0], len(ranks)
    parts = joined(ranks, "x", first["seq_dim"]).chunk(w, dim=first["head_dim"])
    return [[unpad(p, first["seq_dim"], first["unpadded_dim_size"], w, mistake)] for p in parts]


class TestModel(ModelTests):
    spec = Spec(
        36,
        to_heads,
        contiguous=False,
        honest=0.75,
        zeros=10.0,
        mistakes={"cut to any length": partial(to_heads, mistake=True)},
        mistake_calls=tuple(range(9)),
        refused=[
            ("", lambda _: {"x": torch.ones(2, 4, 6), "seq_dim": 1, "head_dim": 1}),
            ("", lambda _: {"x": torch.ones(2, 4, 5), "seq_dim": 1, "head_dim": 2}),
            ("", lambda _: {"x": torch.ones(2, 4, 6), "seq_dim": 1, "head_dim": 2, "unpadded_dim_size": 9}),
        ],
    )


def test_calls_differ_in_axes_and_lengths() -> None:
    check_axes(36)
    check_lengths(36)


def exchange_with_negative_axes(rank: int, world_size: int) -> Outputs:
    """On a rank: heads out and back again (problem 37), with the axes named both ways."""
    x = torch.ones(2, 3, 4, 5) * torch.arange(3)[:, None, None]
    forward = get(36).reference(x, -3, -2)
    return [forward, get(36).reference(x, 1, 2), get(37).reference(forward, -3, -2)]


def test_negative_axes_count_from_the_end(world: Worlds) -> None:
    for forward, named, back in world(2).call(exchange_with_negative_axes):
        assert torch.equal(forward, named)
        assert torch.equal(back, torch.ones(2, 3, 4, 5) * torch.arange(3)[:, None, None])
