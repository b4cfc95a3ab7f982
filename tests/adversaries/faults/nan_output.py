"""Returns NaN, which compares false with everything and must not slip through as "not greater than the
tolerance".
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: wrong
# platform: cpu

import torch


def solution(tensor):
    return torch.full_like(tensor, float("nan"))
