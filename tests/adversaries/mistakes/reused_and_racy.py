"""M13 and M3: keeps its output tensor, and does not wait before its buffer is used again. Both are there; the race is what
counts, since no copy of the result helps against it.
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
_out = {}


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
    return _out.setdefault(key, torch.empty_like(tensor)).copy_(total)
