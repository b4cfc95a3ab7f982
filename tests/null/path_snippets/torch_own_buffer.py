"""Trap: the rank copies into its own symmetric buffer only; a library moves the data."""
# expect: library

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem


def solution(x, group):
    handle = symm_mem.rendezvous(x, group)
    rank = dist.get_rank(group)
    own = handle.get_buffer(rank, x.shape, x.dtype)
    own.copy_(x * 2)
    mine = handle.get_buffer(handle.rank, x.shape, x.dtype)
    out = mine.clone()
    dist.all_reduce(out)  # <- library
    return out
