"""Honest: two buffers in turn and no barrier at the end. A buffer comes round again only after the barrier of
the call between, by which all have read it. It must not be called a race.
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
        buffer = symm_mem.empty(2, tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD), [0]
    buffer, handle, turn = _buffers[key]
    turn[0] ^= 1
    buffer[turn[0]].copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    total = torch.zeros(tensor.numel(), dtype=torch.float32, device=tensor.device)
    for peer in range(handle.world_size):
        total += handle.get_buffer(peer, (tensor.numel(),), tensor.dtype, turn[0] * tensor.numel()).float()
    return total.to(tensor.dtype).reshape(tensor.shape)
