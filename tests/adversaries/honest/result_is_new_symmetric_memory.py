"""Honest: symmetric memory is made anew in every call, peers store into it, and the result is a view of it. No other call ever
touches that memory, so nothing is reused. (A rendezvous in every call is slow, and right.)
"""
# problem: 2
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
# platform: cpu
# also: gpu

import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem


def solution(tensor):
    world = dist.get_world_size()
    result = symm_mem.empty(world, *tensor.shape, dtype=tensor.dtype, device=tensor.device)
    handle = symm_mem.rendezvous(result, dist.group.WORLD)
    for step in range(world):
        handle.get_buffer((handle.rank + step) % world, result.shape, tensor.dtype)[handle.rank] = tensor
    handle.barrier(channel=0)
    return result[:]
