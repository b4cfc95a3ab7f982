"""The functions that a problem brings with it, by name."""

from typing import Literal, get_args

Against = Literal["baseline", "reference"]
"""What a candidate is timed against: the best stock PyTorch + NCCL, or the readable specification, as published results are."""
AGAINST: tuple[Against, ...] = get_args(Against)
StockFunction = Literal["baseline", "reference", "stock_symmetric"]
STOCK_FUNCTIONS: tuple[StockFunction, ...] = get_args(StockFunction)
