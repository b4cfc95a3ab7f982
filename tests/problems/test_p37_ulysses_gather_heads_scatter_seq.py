"""Problem 37, Ulysses layout switch after attention: heads joined, positions shared out."""

import math

import torch
from harness import ModelTests, Spec
from model_ulysses import check_axes
from on_ranks import Arguments, Outputs, all_arguments, joined


def to_positions(ranks: list[Arguments]) -> list[Outputs]:
    seq_dim, w = ranks[0]["seq_dim"], len(ranks)
    heads = joined(ranks, "x", ranks[0]["head_dim"]).movedim(seq_dim, 0)
    part = math.ceil(len(heads) / w)
    padded = torch.cat([heads, torch.zeros(part * w - len(heads), *heads.shape[1:], dtype=torch.float64)])
    return [[padded[r * part : (r + 1) * part].movedim(0, seq_dim)] for r in range(w)]


class TestModel(ModelTests):
    spec = Spec(
        37,
        to_positions,
        honest=0.75,
        zeros=10.0,
        refused=[("", lambda _: {"x": torch.ones(2, 4, 6), "seq_dim": 2, "head_dim": -1})],
    )


def test_calls_differ_in_axes_and_lengths() -> None:
    check_axes(37)
    calls = [all_arguments(37, 4, "tiny", "fp32", call)[1] for call in range(40)]
    assert {a["x"].shape[a["seq_dim"]] for a in calls} == {21, 22, 23, 24}
