"""R4: memory in the buffers of sockets, 200 KiB each, which belong to no process and no file. Stopped by bounding how many sockets a
side may have open. Here they stay empty: filled, these would hold 800 MiB, and 65,536 descriptors a rank hold thirteen gibibytes.
"""
# problem: 1
# ranks: 2
# plan: quick
# memory_limit_gib: 2
# expect: crash
# rule: process_limit
# says: open sockets
# platform: cpu

import socket
import time

import torch.distributed as dist

_held = []


def solution(tensor):
    if not _held:
        _held.extend(socket.socketpair() for _ in range(1100))
        time.sleep(2)
    out = tensor.clone()
    dist.all_reduce(out)
    return out
