"""86: the reference with torch.set_float32_matmul_precision("medium"): bf16 products, as the sources have it."""

from dataclasses import replace
from typing import Any

import torch

from pkb.problems import get

REFERENCE = get(86).reference


def alternative(*arguments: Any) -> torch.Tensor:
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        return REFERENCE(*arguments)  # type: ignore[no-any-return]
    finally:
        torch.set_float32_matmul_precision(precision)


PROBLEM = replace(get(86), id=8602, name="float32_medium", baseline=alternative)
