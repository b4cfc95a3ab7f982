"""Honest: one buffer for all shapes, sized for the largest."""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_state = []


def solution(tensor):
    if not _state:
        buffer = symm_mem.empty(1 << 20, dtype=torch.float32, device=tensor.device)
        _state.extend((buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)))
    _, handle = _state
    count = tensor.numel()
    handle.get_buffer(handle.rank, (count,), tensor.dtype).copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    total = sum(handle.get_buffer(peer, tensor.shape, tensor.dtype).float() for peer in range(handle.world_size))
    handle.barrier(channel=1)
    return total.to(tensor.dtype)
