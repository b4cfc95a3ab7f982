"""M19: rank 0 thinks it is done early and never comes to the second barrier."""
# problem: 1
# ranks: 2
# plan: quick
# call_limit_s: 4
# expect: deadlock
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem


def solution(tensor):
    buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
    handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    total = sum(handle.get_buffer(peer, tensor.shape, tensor.dtype).float() for peer in range(handle.world_size))
    if handle.rank != 0:
        handle.barrier(channel=1)
    return total.to(tensor.dtype)
