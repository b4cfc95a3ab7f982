"""Subtle: two halves of a buffer take turns, but the turn of the reader stands still: right in calls 0, 2, 4."""
# problem: 8
# ranks: 2
# plan: quick
# expect: wrong|race
# platform: cpu

import itertools

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

turns = itertools.count()
halves = {}


def solution(tensor):
    if tensor.shape not in halves:
        both = symm_mem.empty(2, *tensor.shape, dtype=tensor.dtype, device=tensor.device)
        halves[tensor.shape] = both, symm_mem.rendezvous(both, dist.group.WORLD), 0
    both, handle, reading = halves[tensor.shape]
    both[next(turns) % 2] = tensor
    handle.barrier(channel=0)
    out = torch.empty_like(tensor)
    for rank in range(handle.world_size):
        out[rank] = handle.get_buffer(rank, both.shape, tensor.dtype)[reading, handle.rank]
    handle.barrier(channel=1)
    return out
