"""T10: hands the right output over in a file that it can still write to and shorten, while the oracle compares. Stopped where
it arrives: only sealed files in memory are taken.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: rejected
# rule: malformed_report
# platform: cpu

import os
import sys

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


def _patched(original):
    def pack(tree):
        description, fd = original(tree)
        changing = os.memfd_create("changing")
        os.pwrite(changing, os.pread(fd, 1 << 30, 0), 0)
        os.close(fd)
        return description, changing

    return pack


for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("rank.server"):
        _module.pack = _patched(_module.pack)


def solution(tensor):
    return honest(tensor)
