"""M2: no barrier between publishing and reading, and one rank is always late with its data: wrong from the first call on.
Made again, the call finds its own data in the buffers, which leads to the cause.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: wrong
# pattern: right_when_repeated
# says: wait for every peer (a barrier) between publishing data and reading it
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
    if handle.rank == 1:
        time.sleep(0.01)
    buffer.copy_(tensor.reshape(-1))
    total = torch.zeros(tensor.shape, dtype=torch.float32, device=tensor.device)
    for peer in range(handle.world_size):
        total += handle.get_buffer(peer, tensor.shape, tensor.dtype)
    handle.barrier(channel=1)
    return total.to(tensor.dtype)
