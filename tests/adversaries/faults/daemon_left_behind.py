"""Leaves a daemonised grandchild behind in a session of its own that would run for an hour. It dies with the
namespace of its side: the runner looks for it.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu

import os
import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}


def honest(tensor):
    """All-reduce on symmetric memory as an honest candidate does it."""
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _buffers[key]
    buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    total = torch.zeros(tensor.numel(), dtype=torch.float32, device=tensor.device)
    for peer in range(handle.world_size):
        total += handle.get_buffer(peer, (tensor.numel(),), tensor.dtype).float()
    handle.barrier(channel=1)
    return total.to(tensor.dtype).reshape(tensor.shape)


def _daemon():
    if getattr(os, "krof"[::-1])() == 0:
        os.setsid()
        if getattr(os, "krof"[::-1])() == 0:
            os.closerange(0, 256)
            time.sleep(3600)
        os._exit(0)


_daemon()


def solution(tensor):
    return honest(tensor)
