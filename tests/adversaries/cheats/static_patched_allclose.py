"""S23: makes torch.allclose say yes. Stopped by the static rule patched_clock.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: rejected
# stage: inspect
# rule: patched_clock
# platform: cpu

import torch

torch.allclose = lambda *args, **kwargs: True


def solution(tensor):
    return torch.zeros_like(tensor)
