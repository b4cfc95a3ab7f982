"""Keeps every buffer from call to call, the one with the result too, and returns a clone of that."""
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
_totals = {}


def solution(tensor):
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
        _totals[key] = torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device)
    (buffer, handle), total = _buffers[key], _totals[key]
    buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    total.zero_()
    for peer in range(handle.world_size):
        total += handle.get_buffer(peer, tensor.shape, tensor.dtype)
    handle.barrier(channel=1)
    return total.to(tensor.dtype).clone()
