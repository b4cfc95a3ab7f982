"""No hidden unit of a small perceptron is so near to 0 that honest bf16 arithmetic may have it on the other side."""

from itertools import product
from typing import Any

import pytest
import torch

from pkb.problems import get
from pkb.problems.draw import Draw
from pkb.problems.mlp_adam import KINK

CASES = list(product((40, 41, 42, 47), ("tiny", "odd"), (2, 4)))


@pytest.mark.parametrize(("number", "size", "ranks"), CASES)
def test_no_unit_is_beside_the_kink(number: int, size: str, ranks: int) -> None:
    problem = get(number)
    units = []
    for call in range(10):
        every: list[dict[str, Any]] = [
            problem.inputs(
                Draw(
                    b"secret",
                    call,
                    rank,
                    ranks,
                    problem.sizes[size],
                    torch.bfloat16,
                    torch.device("cpu"),
                    problem.layout,
                )
            )
            for rank in range(ranks)
        ]
        if "W1" in every[0]:
            weight, bias = every[0]["W1"], every[0]["b1"]
        else:
            (hidden, d_in), *_ = every[0]["param_shapes"]
            flat = torch.cat([one["flat_param_shard"] for one in every])
            weight, bias = flat[: hidden * d_in].view(hidden, d_in), flat[hidden * d_in :][:hidden]
        for one in every:
            units.append(torch.nn.functional.linear(one["X_local"].double(), weight.double(), bias.double()))
    every_unit = torch.cat(units)
    assert every_unit.abs().min() >= KINK
    assert 0.3 < (every_unit > 0).double().mean() < 0.7, "and they are on both sides"
