"""Subtle: folds epsilon into a table at the first call and keeps it, though it differs from call to call."""
# problem: 45
# ranks: 2
# plan: quick
# expect: wrong
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

prepared = {}


def solution(rs_input_1d, gamma, eps):
    count, width = rs_input_1d.numel(), gamma.numel()
    if count not in prepared:
        window = symm_mem.empty(count, dtype=rs_input_1d.dtype, device=rs_input_1d.device)
        handle = symm_mem.rendezvous(window, dist.group.WORLD)
        prepared[count] = window, handle, torch.full((count // handle.world_size // width, 1), eps)
    window, handle, table = prepared[count]
    window.copy_(rs_input_1d)
    handle.barrier(channel=0)
    own = count // handle.world_size
    mine = slice(handle.rank * own, (handle.rank + 1) * own)
    parts = [handle.get_buffer(rank, (count,), window.dtype)[mine].float() for rank in range(handle.world_size)]
    handle.barrier(channel=1)
    mean = sum(parts).view(-1, width) / handle.world_size
    return (mean * torch.rsqrt(mean.square().mean(-1, keepdim=True) + table) * gamma.float()).to(rs_input_1d.dtype)
