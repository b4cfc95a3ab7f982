"""T21: children that keep every core busy while its own ranks wait for orders, and that wake whatever was stopped.
While the reference is measured every process below the warden is stopped, looked at until nothing moves any more, and
must have had no time on a core when it is over.
"""
# problem: 1
# ranks: 2
# size: paper
# plan: timing
# expect: correct|rejected
# gain: none
# platform: cpu
# also: gpu

import os
import signal
import sys
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


_busy = torch.zeros(1, dtype=torch.int64).share_memory_()


def _sabotage(parent):
    """Runs beside everything but its own rank's calls."""
    while True:
        give_up = time.perf_counter() + 0.002
        while not int(_busy[0]) and time.perf_counter() < give_up:
            pass
        for pid in range(1, 60):
            try:
                os.kill(pid, signal.SIGCONT)
            except OSError:
                pass
        time.sleep(0.0005)


def _run(original):
    def run(self, function, command, **more):
        _busy[0] = 1
        try:
            return original(self, function, command, **more)
        finally:
            _busy[0] = 0

    return run


for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("rank.server"):
        _module.Rank.run = _run(_module.Rank.run)

for _ in range(2):
    _parent = os.getpid()
    if getattr(os, "krof"[::-1])() == 0:
        try:
            _sabotage(_parent)
        finally:
            os._exit(0)


def solution(tensor):
    time.sleep(0.002)  # slower than it need be: only a slower reference can make it look fast
    return honest(tensor)
