"""S5: returns memory it never wrote, hoping that it still holds an earlier result. Stopped because no truth was
ever in this process.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: wrong
# platform: cpu

import torch


def solution(tensor):
    return torch.empty_like(tensor)
