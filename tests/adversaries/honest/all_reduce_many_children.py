"""Honest, if odd: forty idle children that share all their memory with their rank, and an anonymous file that is mapped. Pages
count once, so this is far below a limit that a sum over processes would exceed (control of R4).
"""
# problem: 1
# ranks: 2
# plan: quick
# memory_limit_gib: 1.5
# expect: correct
# communication: custom
# platform: cpu

import mmap
import os
import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}


def honest(tensor):
    """All-reduce on symmetric memory as an honest candidate does it."""
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _buffers[key]
    buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    total = torch.zeros(tensor.numel(), dtype=torch.float32, device=tensor.device)
    for peer in range(handle.world_size):
        total += handle.get_buffer(peer, (tensor.numel(),), tensor.dtype).float()
    handle.barrier(channel=1)
    return total.to(tensor.dtype).reshape(tensor.shape)


_file = os.memfd_create("mapped")
os.truncate(_file, 150 << 20)
_mapped = mmap.mmap(_file, 150 << 20)
_mapped.write(b"x" * (150 << 20))


def solution(tensor):
    if not _buffers:
        for _ in range(40):
            if os.fork() == 0:
                time.sleep(20)
                os._exit(0)
    return honest(tensor)
