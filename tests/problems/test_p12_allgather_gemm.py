"""Problem 12, all-gather and GEMM."""

from harness import ModelTests, Spec
from model_gemm import allgather_gemm


class TestModel(ModelTests):
    spec = Spec(
        12,
        allgather_gemm,
        ordered=True,
        calls=(0, 3),
        more_cases=((1, "tiny", "fp32"), (3, "odd", "bf16")),
        honest=0.7,
        exactness=1e-12,
        mistaken_always=3.0,
        mistake_calls=(1,),
        refused=[("", lambda a: {"B": a["B"][:-1]})],
    )
