"""86: the reference with torch.set_float32_matmul_precision("high"): TF32 products of float32 values, in every dtype."""

from dataclasses import replace
from typing import Any

import torch

from pkb.problems import get

REFERENCE = get(86).reference


def alternative(*arguments: Any) -> torch.Tensor:
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        return REFERENCE(*arguments)  # type: ignore[no-any-return]
    finally:
        torch.set_float32_matmul_precision(precision)


PROBLEM = replace(get(86), id=8601, name="float32_high", baseline=alternative)
