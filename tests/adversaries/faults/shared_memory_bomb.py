"""Allocates shared anonymous memory, which a count of private pages does not see. Memory is memory, whoever else
may see it.
"""
# problem: 1
# ranks: 2
# plan: quick
# memory_limit_gib: 1
# expect: crash
# rule: memory_limit
# platform: cpu

import mmap
import time

_kept = []


def solution(tensor):
    for _ in range(20):
        page = mmap.mmap(-1, 64 << 20)
        page.write(b"x" * (64 << 20))
        _kept.append(page)
        time.sleep(0.05)
    time.sleep(2)
    return tensor
