"""R4: keeps memory in anonymous files that it maps nowhere, so that no process is larger for it. Files in memory count, by
inode, whoever holds them open.
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

_kept = []
_block = b"x" * (64 << 20)


def solution(tensor):
    for _ in range(20):
        _kept.append(os.memfd_create("kept"))
        os.write(_kept[-1], _block)
        time.sleep(0.05)
    time.sleep(3)
    return tensor
