"""R4: a process whose first thread has ended shows nothing of its memory, descriptors and sockets under its own number, while its
other threads live on. Here three gibibytes. Stopped by looking at a thread that lives.
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

_held = []


def _hold():
    time.sleep(0.5)
    _held.append(bytearray(3 << 30))
    for place in range(0, len(_held[0]), 4096):
        _held[0][place] = 1
    time.sleep(60)


def _child():
    threading.Thread(target=_hold, daemon=True).start()
    ctypes.CDLL(None).pthread_exit(None)


def solution(tensor):
    if not _held and os.environ["RANK"] == "0":
        _held.append(os.fork())
        if _held[0] == 0:
            _held.clear()
            _child()
        time.sleep(9)
    out = tensor.clone()
    dist.all_reduce(out)
    return out
