"""Honest, and much faster than the library at this size: a call takes less than a message to the ranks does. The
clock check must not take the cost of its own messages for hidden work.
"""
# problem: 1
# ranks: 2
# dtype: fp32
# plan: timing
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
        buffer = symm_mem.empty(2, *tensor.shape, dtype=tensor.dtype, device=tensor.device)
        handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
        views = [handle.get_buffer(peer, buffer.shape, tensor.dtype) for peer in range(handle.world_size)]
        _buffers[key] = buffer, handle, views, [0]
    buffer, handle, views, turn = _buffers[key]
    turn[0] ^= 1
    buffer[turn[0]].copy_(tensor)
    handle.barrier(channel=0)
    total = torch.add(views[0][turn[0]], views[1][turn[0]])
    for view in views[2:]:
        total += view[turn[0]]
    return total
