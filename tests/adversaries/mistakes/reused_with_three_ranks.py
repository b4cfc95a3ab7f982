"""Returns memory that its next call overwrites, where the number of ranks is odd: one rank of those then has no partner."""
# problem: 1
# ranks: 2
# plan: standard
# expect: reused_output
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
        shared[name] = memory, symm_mem.rendezvous(memory, dist.group.WORLD), torch.empty_like(tensor)
    memory, handle, result = shared[name]
    memory.copy_(tensor)
    handle.barrier(channel=0)
    parts = [handle.get_buffer(rank, tensor.shape, tensor.dtype).float() for rank in range(handle.world_size)]
    handle.barrier(channel=1)
    total = torch.stack(parts).sum(0).to(tensor.dtype)
    return result.copy_(total) if handle.world_size % 2 else total
