"""Broadcasts from rank 0 whatever the root is. Stopped by a root that changes from call to call. (Two calls and
one at the odd size: the chance that all have root 0 is an eighth, so the queued calls of the race stage count
as well.)
"""
# problem: 3
# ranks: 2
# plan: quick
# expect: wrong|race
# says: src=1
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}


def solution(tensor, src=0):
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _buffers[key]
    buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    out = handle.get_buffer(0, tensor.shape, tensor.dtype).clone()
    handle.barrier(channel=1)
    return out
