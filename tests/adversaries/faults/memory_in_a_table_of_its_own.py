"""R4: a thread with a table of descriptors of its own: what it holds open is not in its process's. It asks for one by close_range,
and holds three gibibytes in a file in memory, which count where the table is shared. Stopped by refusing the table.
"""
# problem: 1
# ranks: 2
# plan: quick
# memory_limit_gib: 2
# call_limit_s: 90
# expect: crash
# rule: memory_limit
# platform: cpu

import ctypes
import os
import threading
import time

import torch.distributed as dist

_CLOSE_RANGE, _UNSHARE = 436, 2
_held = []


def _hold():
    ctypes.CDLL(None, use_errno=True).syscall(_CLOSE_RANGE, 1_000_000, 1_000_001, _UNSHARE)
    file = os.memfd_create("x")
    block = bytes(1 << 24)
    for _ in range(192):
        os.write(file, block)
    time.sleep(100)


def solution(tensor):
    if not _held and os.environ["RANK"] == "0":
        _held.append(threading.Thread(target=_hold, daemon=True))
        _held[0].start()
        time.sleep(6)
    out = tensor.clone()
    dist.all_reduce(out)
    return out
