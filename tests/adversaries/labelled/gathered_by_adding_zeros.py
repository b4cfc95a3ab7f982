"""Subtle: gathers by adding tensors that are zero everywhere but in the own slice. -0.0 becomes 0.0, and an infinity that meets
0 * infinity would too; the problem promises the same bits. No value that is drawn shows it.
"""
# problem: 2
# ranks: 2
# plan: quick
# expect: correct|wrong
# beyond: size=tiny, where as everywhere no value is -0.0
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

shared = {}


def solution(tensor):
    shape = (dist.get_world_size(), *tensor.shape)
    if shape not in shared:
        memory = symm_mem.empty(shape, dtype=tensor.dtype, device=tensor.device)
        shared[shape] = memory, symm_mem.rendezvous(memory, dist.group.WORLD)
    memory, handle = shared[shape]
    memory.zero_()
    memory[handle.rank] = tensor
    handle.barrier(channel=0)
    total = sum(handle.get_buffer(rank, shape, tensor.dtype) for rank in range(handle.world_size))
    handle.barrier(channel=1)
    return total
