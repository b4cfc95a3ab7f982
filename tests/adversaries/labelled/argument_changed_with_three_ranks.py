"""Subtle: with an odd number of ranks the one without a partner is added into the caller's own tensor."""
# problem: 1
# ranks: 3
# plan: quick
# expect: rejected
# beyond: ranks=2, where no rank is without a partner
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
    handle.barrier(channel=1)
    single = parts.pop() if len(parts) % 2 else None
    total = sum(a + b for a, b in zip(parts[::2], parts[1::2]))
    if single is not None:
        total = tensor.copy_(total + single) if handle.rank == 1 else total + single
    return total.to(tensor.dtype, copy=True)
