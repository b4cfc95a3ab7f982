"""T6: much faster than the library in three calls of five, and far slower in the other two, which no median sees. Stopped by the
host wall clock and by the sum of the timed calls: it is not called faster.
"""
# problem: 1
# ranks: 2
# dtype: fp32
# plan: timing
# expect: correct
# gain: none
# platform: cpu

import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}


def fast(tensor):
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
    return torch.add(views[0][turn[0]], views[1][turn[0]])


_calls = [0]


def solution(tensor):
    _calls[0] += 1
    if _calls[0] % 5 in (1, 3):
        time.sleep(0.03)
    return fast(tensor)
