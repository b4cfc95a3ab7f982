"""M3: no barrier after reading. A fast rank's next call overwrites its buffer while a slow one still adds it up;
one call at a time is right.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: race
# stage: races
# platform: cpu

import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}


def solution(tensor):
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _buffers[key]
    buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    if handle.rank == 1:
        time.sleep(0.002)  # a longer way to the data, as on a busy link
    total = sum(handle.get_buffer(peer, tensor.shape, tensor.dtype).float() for peer in range(handle.world_size))
    return total.to(tensor.dtype)
