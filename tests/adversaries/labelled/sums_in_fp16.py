"""Subtle: adds bf16 numbers up in fp16, which has more digits and ends at 65,504. No summand that is drawn comes near that, so no
call shows it; with gradients before a loss scale is taken out it does.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct|wrong
# beyond: size=tiny, where as everywhere values are drawn around 1
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

shared = {}


def solution(tensor):
    if tensor.shape not in shared:
        memory = symm_mem.empty(tensor.shape, dtype=torch.float16, device=tensor.device)
        shared[tensor.shape] = memory, symm_mem.rendezvous(memory, dist.group.WORLD)
    memory, handle = shared[tensor.shape]
    memory.copy_(tensor)
    handle.barrier(channel=0)
    parts = [handle.get_buffer(rank, tensor.shape, torch.float16) for rank in range(handle.world_size)]
    total = torch.stack(parts).sum(0)
    handle.barrier(channel=1)
    return total.to(tensor.dtype)
