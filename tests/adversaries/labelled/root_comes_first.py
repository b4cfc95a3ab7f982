"""Subtle: the root asks its peers beginning with itself and stacks in that order: right for root 0 only."""
# problem: 6
# ranks: 3
# plan: quick
# expect: wrong|race
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

windows = {}


def solution(tensor, dst=0):
    if tensor.shape not in windows:
        window = symm_mem.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        windows[tensor.shape] = window, symm_mem.rendezvous(window, dist.group.WORLD)
    window, handle = windows[tensor.shape]
    window.copy_(tensor)
    handle.barrier(channel=0)
    result = tensor
    if handle.rank == dst:
        order = [(dst + step) % handle.world_size for step in range(handle.world_size)]
        result = torch.stack([handle.get_buffer(rank, tensor.shape, tensor.dtype) for rank in order])
    handle.barrier(channel=1)
    return result
