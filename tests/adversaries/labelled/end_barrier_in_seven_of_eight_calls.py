"""Subtle: the barrier at the end is left out in every eighth call, where the next call may overwrite what a peer still reads."""
# problem: 1
# ranks: 2
# plan: quick
# expect: race|wrong
# platform: cpu

import itertools

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

calls = itertools.count(1)
shared = {}


def solution(tensor):
    if tensor.shape not in shared:
        memory = symm_mem.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        shared[tensor.shape] = memory, symm_mem.rendezvous(memory, dist.group.WORLD)
    memory, handle = shared[tensor.shape]
    memory.copy_(tensor)
    handle.barrier(channel=0)
    total = torch.zeros_like(tensor, dtype=torch.float32)
    for rank in range(handle.world_size):
        total += handle.get_buffer(rank, tensor.shape, tensor.dtype)
    if next(calls) % 8:
        handle.barrier(channel=1)
    return total.to(tensor.dtype)
