"""Sequences of which a rank holds chunk r and chunk 2 W - 1 - r."""

import torch


def in_order(parts: list[torch.Tensor]) -> torch.Tensor:
    """The natural sequence (last axis) from what each rank holds: its chunk r, then its chunk 2 W - 1 - r."""
    halves = [part.chunk(2, dim=-1) for part in parts]
    return torch.cat([first for first, _ in halves] + [second for _, second in reversed(halves)], dim=-1)


def zigzag(whole: torch.Tensor, world_size: int) -> list[torch.Tensor]:
    chunks = whole.chunk(2 * world_size, dim=-1)
    return [torch.cat([chunks[r], chunks[2 * world_size - 1 - r]], dim=-1) for r in range(world_size)]
