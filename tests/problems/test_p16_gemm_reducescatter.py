"""Problem 16, GEMM and reduce-scatter: one product, its rows shared out."""

import torch
from harness import ModelTests, Spec
from model_gemm import gemm_allreduce
from on_ranks import Arguments, Array


def gemm_reducescatter(ranks: list[Arguments]) -> list[Array]:
    whole = gemm_allreduce(ranks)[0]
    rows = whole.shape[0] // len(ranks)
    return [whole[r * rows : (r + 1) * rows] for r in range(len(ranks))]


class TestModel(ModelTests):
    spec = Spec(
        16,
        gemm_reducescatter,
        worlds=(1, 2, 3, 4),
        ordered=True,
        calls=(1, 2),
        refused=[
            ("3 rows", lambda _: {"A_local": torch.ones(3, 3), "B_local": torch.ones(3, 3)}),
            ("inner sizes", lambda _: {"A_local": torch.ones(3, 3), "B_local": torch.ones(2, 3)}),
        ],
    )
