"""74: the baseline with TF32 products."""

from dataclasses import replace
from typing import Any

import torch

from pkb.problems import get

BASELINE = get(74).baseline


def alternative(*arguments: Any) -> torch.Tensor:
    assert BASELINE is not None
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        return BASELINE(*arguments)  # type: ignore[no-any-return]
    finally:
        torch.set_float32_matmul_precision(precision)


PROBLEM = replace(get(74), id=7401, name="tf32_products", baseline=alternative)
