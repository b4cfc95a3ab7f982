"""Subtle: blocks of 64 elements, rounded down; what is left over in the result is as the allocator gave it."""
# problem: 13
# ranks: 2
# plan: quick
# expect: wrong
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

BLOCK = 64
partials = {}


def solution(A_local, B_local):
    product = (A_local.float() @ B_local.float()).to(A_local.dtype).reshape(-1)
    count = product.numel()
    if count not in partials:
        partial = symm_mem.empty(count, dtype=product.dtype, device=product.device)
        partials[count] = partial, symm_mem.rendezvous(partial, dist.group.WORLD)
    partial, handle = partials[count]
    partial.copy_(product)
    handle.barrier(channel=0)
    views = [handle.get_buffer(rank, (count,), product.dtype) for rank in range(handle.world_size)]
    out = torch.empty_like(product)
    for number in range(count // BLOCK):
        block = slice(number * BLOCK, (number + 1) * BLOCK)
        out[block] = torch.stack([view[block] for view in views]).float().sum(0)
    handle.barrier(channel=1)
    return out.view(A_local.shape[0], B_local.shape[1])
