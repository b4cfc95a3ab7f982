"""Returns a tensor without storage.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: rejected|wrong
# platform: cpu
# xfail: trees.describe takes a tensor without storage; packing it raises

import torch


def solution(tensor):
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
