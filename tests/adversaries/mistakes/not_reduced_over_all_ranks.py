"""Adds its neighbour's tensor only: right with two ranks, wrong with three."""
# problem: 1
# ranks: 3
# plan: quick
# expect: wrong
# platform: cpu

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
    total = (
        tensor.float() + handle.get_buffer((handle.rank + 1) % handle.world_size, tensor.shape, tensor.dtype).float()
    )
    handle.barrier(channel=1)
    return total.to(tensor.dtype)
