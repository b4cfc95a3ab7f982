"""Rows that are cut into consecutive chunks, one for each peer."""

import torch


def pieces(rows: torch.Tensor, counts: list[int]) -> list[torch.Tensor]:
    return [rows[sum(counts[:i]) : sum(counts[: i + 1])] for i in range(len(counts))]
