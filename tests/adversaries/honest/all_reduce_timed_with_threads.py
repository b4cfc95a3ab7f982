"""Honest and timed, with a thread of its own that sleeps most of the time and a child that waits: they are stopped and go on
with the others, and nobody is accused for having them.
"""
# problem: 1
# ranks: 2
# size: paper
# plan: timing
# expect: correct
# communication: custom
# platform: cpu

import subprocess
import threading
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


def _tick():
    while True:
        time.sleep(0.05)


threading.Thread(target=_tick, daemon=True).start()
_child = subprocess.Popen(["sleep", "1000"])


def solution(tensor):
    return honest(tensor)
