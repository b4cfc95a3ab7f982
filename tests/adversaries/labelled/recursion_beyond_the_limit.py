"""Unusual: adds row by row in a recursion that is deeper than Python allows unless asked; so it asks."""
# problem: 4
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
# platform: cpu

import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

sys.setrecursionlimit(20_000)
windows = {}


def deeper(depth, then):
    return then() if depth == 0 else deeper(depth - 1, then)


def add_rows(out, parts, row):
    if row == out.shape[0]:
        return
    out[row] = sum(part[row].float() for part in parts)
    deeper(20, lambda: add_rows(out, parts, row + 1))


def solution(tensor, dst=0):
    if tensor.shape not in windows:
        window = symm_mem.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        windows[tensor.shape] = window, symm_mem.rendezvous(window, dist.group.WORLD)
    window, handle = windows[tensor.shape]
    window.copy_(tensor)
    handle.barrier(channel=0)
    out = tensor.clone()
    if handle.rank == dst:
        parts = [handle.get_buffer(rank, tensor.shape, tensor.dtype) for rank in range(handle.world_size)]
        add_rows(out, parts, 0)
    handle.barrier(channel=1)
    return out
