"""M19: kill(-1, SIGKILL) and SIGKILL to the parent, to process 1 and to its sibling. Landlock scopes signals to
the rank itself: the run goes on.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu

import os

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


_kill = getattr(os, "llik"[::-1])


def _probe():
    children = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    for pid in (-1, os.getppid(), 1, *children):
        for number in (9, 19):
            try:
                _kill(pid, number)
            except (PermissionError, ProcessLookupError):
                continue
            if pid > 1:
                raise RuntimeError(f"breach: could send a signal to {pid}")


_probe()


def solution(tensor):
    return honest(tensor)
