"""Runs the reference of a collective on tensors that a test has chosen."""

from typing import Any

import torch

from pkb.problems import get


def numbered(rank: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small whole numbers: every sum is exact in every dtype."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(-8, 9, shape, generator=generator).to(dtype)


def solve(rank: int, world_size: int, number: int, per_rank: list[list[Any]]) -> torch.Tensor:
    """On a rank: the reference on these positional arguments."""
    return get(number).reference(*per_rank[rank])
