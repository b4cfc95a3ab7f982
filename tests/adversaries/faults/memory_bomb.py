"""Allocates without end. Stopped by the judge when all ranks together pass the limit, before the machine
suffers.
"""
# problem: 1
# ranks: 2
# plan: quick
# memory_limit_gib: 1
# expect: crash
# rule: memory_limit
# platform: cpu

import time

_kept = []


def solution(tensor):
    for _ in range(40):
        _kept.append(bytearray(b"x") * (64 << 20))
        time.sleep(0.05)
    time.sleep(3)
    return tensor
