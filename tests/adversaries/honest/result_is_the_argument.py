"""Gather, where a rank that is not the root may return its argument itself: memory of the caller's, new in every call."""
# problem: 6
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}


def solution(tensor, dst=0):
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _buffers[key]
    buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    out = tensor
    if handle.rank == dst:
        parts = [handle.get_buffer(peer, tensor.shape, tensor.dtype) for peer in range(handle.world_size)]
        out = torch.stack(parts)
    handle.barrier(channel=1)
    return out
