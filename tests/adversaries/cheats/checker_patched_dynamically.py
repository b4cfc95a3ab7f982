"""S23: makes every comparison of torch say yes, under names put together at run time. Stopped because the
comparison is made in a process that never loads the candidate.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: wrong
# platform: cpu

import torch

for _name in ("esolclla", "lauqe", "esolcsi"):
    vars(torch)[_name[::-1]] = lambda *args, **kwargs: True


def solution(tensor):
    return torch.zeros_like(tensor)
