"""R4: starts seventy children that do nothing and lets the last of them allocate. Every process of the side is counted, and
what they share only once.
"""
# problem: 1
# ranks: 2
# plan: quick
# memory_limit_gib: 1
# expect: crash
# rule: memory_limit
# platform: cpu

import os
import time

import torch.distributed as dist


def _child(number):
    if number == 69:
        time.sleep(1)
        kept = []
        for _ in range(30):
            kept.append(bytearray(b"x") * (64 << 20))
            time.sleep(0.05)
    time.sleep(30)


def solution(tensor):
    if dist.get_rank() == 0:
        for number in range(70):
            if os.fork() == 0:
                try:
                    _child(number)
                finally:
                    os._exit(0)
        time.sleep(8)
    return tensor
