"""Returns a tensor without storage."""
# problem: 1
# ranks: 2
# plan: quick
# expect: rejected|wrong
# platform: cpu

import torch


def solution(tensor):
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
