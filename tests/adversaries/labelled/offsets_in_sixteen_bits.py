"""Subtle: where a tile begins is kept in 16 bits, which is enough for 65,536 elements and wraps beyond. (32 bits and 4 billion
elements are the same mistake at a size that no CPU is asked for.)
"""
# problem: 2
# ranks: 2
# size: paper
# plan: quick
# expect: wrong
# beyond: size=tiny, where 16 bits are enough
# platform: cpu

import ctypes

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

TILE = 8192
shards = {}


def solution(tensor):
    count = tensor.numel()
    if count not in shards:
        shard = symm_mem.empty(count, dtype=tensor.dtype, device=tensor.device)
        shards[count] = shard, symm_mem.rendezvous(shard, dist.group.WORLD)
    shard, handle = shards[count]
    shard.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    out = torch.zeros(handle.world_size, count, dtype=tensor.dtype, device=tensor.device)
    for rank in range(handle.world_size):
        theirs = handle.get_buffer(rank, (count,), tensor.dtype)
        for number in range(-(-count // TILE)):
            begin = ctypes.c_uint16(number * TILE).value
            out[rank, begin : begin + TILE] = theirs[begin : begin + TILE]
    handle.barrier(channel=1)
    return out.view(handle.world_size, *tensor.shape)
