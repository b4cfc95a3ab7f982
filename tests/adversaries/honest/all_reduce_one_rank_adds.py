"""M9, honest: rank 0 does all the work and pushes the result to the others. Slow, and right: a call's time is
that of its slowest rank.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
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
    if handle.rank == 0:
        views = [handle.get_buffer(peer, buffer.shape, tensor.dtype) for peer in range(handle.world_size)]
        total = sum(view.float() for view in views).to(tensor.dtype)
        for view in views:
            view.copy_(total)
    handle.barrier(channel=1)
    return buffer.clone().reshape(tensor.shape)
