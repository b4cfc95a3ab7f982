"""Unusual: process groups of its own, first of neighbours and then across, each with symmetric memory: a sum in two steps."""
# problem: 1
# ranks: 4
# plan: quick
# expect: correct
# communication: custom
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

NEAR, FAR = [[0, 1], [2, 3]], [[0, 2], [1, 3]]
levels = {}


def group_of(partition):
    made = [(members, dist.new_group(members)) for members in partition]
    return next(group for members, group in made if dist.get_rank() in members)


def level(partition, count):
    window = symm_mem.empty(count, dtype=torch.float32, device="cpu")
    return window, symm_mem.rendezvous(window, groups[str(partition)])


groups = {}


def add(values, partition):
    if str(partition) not in groups:
        groups[str(partition)] = group_of(partition)
    key = values.numel(), str(partition)
    if key not in levels:
        levels[key] = level(partition, values.numel())
    window, handle = levels[key]
    window.copy_(values)
    handle.barrier(channel=0)
    both = [handle.get_buffer(rank, (values.numel(),), torch.float32).clone() for rank in range(2)]
    handle.barrier(channel=1)
    return both[0] + both[1]


def solution(tensor):
    total = add(add(tensor.reshape(-1).float(), NEAR), FAR)
    return total.to(tensor.dtype).view(tensor.shape)
