"""Problem 13, GEMM and all-reduce: one product over the whole contraction."""

import torch
from harness import ModelTests, Spec
from model_gemm import gemm_allreduce


class TestModel(ModelTests):
    spec = Spec(
        13,
        gemm_allreduce,
        worlds=(1, 2, 3, 4),
        ordered=True,
        calls=(1, 2),
        refused=[("inner sizes", lambda _: {"A_local": torch.ones(3, 3), "B_local": torch.ones(2, 3)})],
    )
