"""Takes a short cut once it is warm, from the sixth call on, which forgets a peer. All calls of the correctness stage are cold. Found
among the queued calls, and wrong there, not racing: the same call made alone is as wrong.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: wrong
# stage: races
# says: the same alone
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
    peers = range(handle.world_size) if next(calls) < 6 else range(1, handle.world_size)
    total = torch.zeros_like(tensor, dtype=torch.float32)
    for rank in peers:
        total += handle.get_buffer(rank, tensor.shape, tensor.dtype)
    handle.barrier(channel=1)
    return total.to(tensor.dtype)
