"""Honest: makes a process group of its own to meet on symmetric memory, and never uses it to move data. A group is no
communication; what is done with it is.
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
        group = dist.new_group(list(range(dist.get_world_size())))
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, group), group
    buffer, handle, _ = _buffers[key]
    buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    total = torch.zeros(tensor.numel(), dtype=torch.float32, device=tensor.device)
    for peer in range(handle.world_size):
        total += handle.get_buffer(peer, (tensor.numel(),), tensor.dtype).float()
    handle.barrier(channel=1)
    return total.to(tensor.dtype).reshape(tensor.shape)
