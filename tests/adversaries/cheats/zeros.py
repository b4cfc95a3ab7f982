"""S11/S12: returns zeros. Stopped by a tolerance that scales with the result.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: wrong
# platform: cpu

import torch


def solution(tensor):
    return torch.zeros_like(tensor)
