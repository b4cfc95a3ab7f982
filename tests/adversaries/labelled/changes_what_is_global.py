"""Unusual: changes what a process has only one of, for its own convenience: torch's default dtype and threads, the folder, the
locale's decimal context, hooks, collection of garbage. None of it is the judge's.
"""
# problem: 1
# ranks: 8
# plan: quick
# expect: correct
# communication: custom
# platform: cpu

import decimal
import gc
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

torch.set_default_dtype(torch.float64)
torch.set_num_threads(2)
torch.manual_seed(0)
torch.set_printoptions(precision=1)
decimal.getcontext().prec = 3
gc.disable()
os.chdir("/")
os.umask(0o077)
sys.excepthook = lambda *_: None
sys.path[:] = []
shared = {}


def solution(tensor):
    if tensor.shape not in shared:
        memory = symm_mem.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        shared[tensor.shape] = memory, symm_mem.rendezvous(memory, dist.group.WORLD)
    memory, handle = shared[tensor.shape]
    memory.copy_(tensor)
    handle.barrier(channel=0)
    total = torch.zeros(tensor.shape)
    for rank in range(handle.world_size):
        total += handle.get_buffer(rank, tensor.shape, tensor.dtype)
    handle.barrier(channel=1)
    return total.to(tensor.dtype)
