"""Problem 11, all-gather and GEMM on transposed operands."""

import torch
from harness import ModelTests, Spec
from model_gemm import allgather_gemm
from on_ranks import all_arguments


class TestModel(ModelTests):
    spec = Spec(
        11,
        allgather_gemm,
        contiguous=False,
        ordered=True,
        calls=(0, 3),
        more_cases=((1, "tiny", "fp32"), (3, "odd", "bf16")),
        honest=0.7,
        exactness=1e-12,
        mistaken_always=3.0,
        mistake_calls=(1,),
        mistakes={"products of the next rank": lambda ranks: [*allgather_gemm(ranks)[1:], allgather_gemm(ranks)[0]]},
        refused=[("", lambda a: {"B": a["B"][:-1]})],
    )


def test_every_rank_has_a_right_operand_of_its_own() -> None:
    first, *others = all_arguments(11, 4, "tiny", "bf16", 0)
    assert not any(torch.equal(first["B"], rank["B"]) for rank in others)
