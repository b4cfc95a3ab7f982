"""Ranks meet in pairs, by exclusive or: the last of three waits for a partner that there is not."""
# problem: 1
# ranks: 4
# plan: standard
# call_limit_s: 6
# expect: deadlock
# says: size tiny, 3 ranks
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

shared = {}


def solution(tensor):
    name = (tensor.shape, tensor.dtype)
    if name not in shared:
        memory = symm_mem.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        shared[name] = memory, symm_mem.rendezvous(memory, dist.group.WORLD)
    memory, handle = shared[name]
    memory.copy_(tensor)
    handle.barrier(channel=0)
    parts = [handle.get_buffer(rank, tensor.shape, tensor.dtype).float() for rank in range(handle.world_size)]
    for distance in (1, 2)[: (handle.world_size + 1) // 2]:
        partner = handle.rank ^ distance
        if partner < handle.world_size:
            handle.put_signal(partner, 1 + distance)
        handle.wait_signal(partner % handle.world_size, 1 + distance)
    handle.barrier(channel=1)
    return torch.stack(parts).sum(0).to(tensor.dtype)
