"""Fills /dev/shm: a private one of its own, but its pages are the machine's memory, and they count against the
limit.
"""
# problem: 1
# ranks: 2
# plan: quick
# memory_limit_gib: 1
# expect: crash
# platform: cpu

import time
from pathlib import Path

import torch.distributed as dist


def solution(tensor):
    for number in range(20):
        Path(f"/dev/shm/filler-{dist.get_rank()}-{number}").write_bytes(b"x" * (64 << 20))
        time.sleep(0.05)
    time.sleep(2)
    return tensor
