"""Subtle: the root adds up in float32, as it should, and forgets to go back; every other rank returns the right dtype."""
# problem: 4
# ranks: 2
# plan: quick
# expect: wrong
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
    result = tensor.clone()
    if handle.rank == dst:
        result = torch.zeros_like(tensor, dtype=torch.float32)
        for rank in range(handle.world_size):
            result += handle.get_buffer(rank, tensor.shape, tensor.dtype)
    handle.barrier(channel=1)
    return result
