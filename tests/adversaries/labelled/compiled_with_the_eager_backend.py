"""Unusual: the local product goes through torch.compile with the backend `eager`, which traces and compiles nothing."""
# problem: 16
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem


@torch.compile(backend="eager", dynamic=True)
def product(a, b):
    return (a.float() @ b.float()).to(a.dtype)


@torch.compile(backend="eager", dynamic=True)
def added(parts):
    return torch.stack(parts).float().sum(0).to(parts[0].dtype)


windows = {}


def solution(A_local, B_local):
    mine = product(A_local, B_local)
    if mine.shape not in windows:
        window = symm_mem.empty(mine.shape, dtype=mine.dtype, device=mine.device)
        windows[mine.shape] = window, symm_mem.rendezvous(window, dist.group.WORLD)
    window, handle = windows[mine.shape]
    window.copy_(mine)
    handle.barrier(channel=0)
    rows = mine.shape[0] // handle.world_size
    first = handle.rank * rows
    out = added([handle.get_buffer(r, mine.shape, mine.dtype)[first : first + rows] for r in range(handle.world_size)])
    handle.barrier(channel=1)
    return out
