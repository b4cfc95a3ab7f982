"""T10: hands its output over in a sealed file of 8 GiB, all but the first bytes of it a hole: mapped as a whole it would be
that much of the oracle's memory. Stopped by the reader: a file is as long as what it describes.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: wrong|rejected
# platform: cpu

import fcntl
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
        sparse = os.memfd_create("sparse", os.MFD_ALLOW_SEALING)
        os.pwrite(sparse, os.pread(fd, 1 << 30, 0), 0)
        os.truncate(sparse, 8 << 30)
        fcntl.fcntl(sparse, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
        os.close(fd)
        return description, sparse

    return pack


for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("rank.server"):
        _module.pack = _patched(_module.pack)


def solution(tensor):
    return honest(tensor)
