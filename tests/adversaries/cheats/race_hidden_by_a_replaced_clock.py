"""M2, T5: waits a millisecond and a half in place of a barrier, and replaces what a rank delays itself with, so that no rank is
ever late. Ranks are stopped from outside as well.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: race|wrong
# platform: cpu

import sys
import time
import types

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}


def solution(tensor):
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _buffers[key]
    buffer.copy_(tensor.reshape(-1))
    time.sleep(0.0015)
    total = sum(handle.get_buffer(peer, tensor.shape, tensor.dtype).float() for peer in range(handle.world_size))
    handle.barrier(channel=1)
    return total.to(tensor.dtype)


# The delays that the judge asks for are slept by code in this process: now they take no time.
for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("rank.execute"):
        _module.time = types.SimpleNamespace(sleep=lambda seconds: None, perf_counter=time.perf_counter)
