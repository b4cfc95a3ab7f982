"""Gradients as `torch._foreach_norm` takes them, for baselines."""

import torch

PIECE = 1 << 12


def summed_apart(gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    """On a GPU the operator adds up in a tree; on a CPU it adds one number after the other, and long sums lose digits."""
    if gradients[0].device.type != "cpu":
        return gradients
    return [piece for gradient in gradients for piece in gradient.reshape(-1).split(PIECE)]
