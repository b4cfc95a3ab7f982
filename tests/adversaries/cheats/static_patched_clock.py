"""T5: replaces the clock in plain sight. Stopped by the static rule patched_clock.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: rejected
# stage: inspect
# rule: patched_clock
# platform: cpu

import time

import torch

time.monotonic_ns = lambda: 1


def solution(tensor):
    return torch.zeros_like(tensor)
