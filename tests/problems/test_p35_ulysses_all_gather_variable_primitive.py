"""Problem 35, Ulysses all-gather of unequal shards."""

import torch
import torch.distributed as dist
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, all_arguments, joined


def gather_variable(ranks: list[Arguments]) -> list[Outputs]:
    return [[joined(ranks, "x", ranks[0]["gather_dim"])]] * len(ranks)


class TestModel(ModelTests):
    spec = Spec(
        35,
        gather_variable,
        honest=0.75,
        zeros=10.0,
        refused=[
            ("", lambda _: {"x": torch.ones(2 + dist.get_rank(), 3 + dist.get_rank()), "gather_dim": 0}),
            ("", lambda _: {"x": torch.ones(2, 4, 6), "gather_dim": 3}),
        ],
    )


def test_shards_are_uneven_and_sometimes_empty() -> None:
    shards = [
        [len(a["x"]) for a in all_arguments(35, 4, "tiny", "fp32", call) if not a["gather_dim"]] for call in range(40)
    ]
    filled = [sizes for sizes in shards if sizes]
    assert 10 < len(filled) < 30
    assert all(sum(sizes) == 4 * 32 for sizes in filled)  # what the cost counts on
    assert any(0 in sizes for sizes in filled)
    assert sum(len(set(sizes)) > 1 for sizes in filled) > len(filled) // 2
