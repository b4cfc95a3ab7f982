"""Plants symbolic links to the candidate's folder in its working folder and writes through them. Landlock
follows the link, and the judge's cleaning does not: the runner looks whether the folder is still there.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu

import os
from pathlib import Path

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


def _probe():
    link = Path(f"link-{os.getpid()}")
    link.symlink_to(Path(__file__).parent)
    try:
        (link / "planted").write_text("x")
    except OSError:
        return
    raise RuntimeError("breach: wrote through a link")


_probe()


def solution(tensor):
    return honest(tensor)
