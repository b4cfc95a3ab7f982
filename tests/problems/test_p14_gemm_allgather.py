"""Problem 14, GEMM and all-gather: one product with all columns."""

import numpy as np
import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Array, all_arguments, arrays


def gemm_allgather(ranks: list[Arguments]) -> list[list[Array]]:
    return [[arrays(ranks, "A")[0] @ np.concatenate(arrays(ranks, "B"), axis=1)]] * len(ranks)


class TestModel(ModelTests):
    spec = Spec(
        14,
        gemm_allgather,
        ordered=True,
        calls=(0, 3),
        more_cases=((1, "tiny", "fp32"), (3, "odd", "bf16")),
        honest=0.7,
        exactness=1e-12,
        mistaken_always=3.0,
        mistake_calls=(1,),
        refused=[("", lambda a: {"B": a["B"][:-1]})],
    )


def test_ranks_share_what_the_layer_replicates() -> None:
    first, *others = all_arguments(14, 4, "tiny", "bf16", 0)
    assert all(torch.equal(first[name], rank[name]) for rank in others for name in ["A"])
