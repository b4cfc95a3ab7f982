"""Honest: the root publishes, everybody reads."""
# problem: 3
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
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
    if handle.rank == src:
        buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    out = handle.get_buffer(src, tensor.shape, tensor.dtype).clone()
    handle.barrier(channel=1)
    return out
