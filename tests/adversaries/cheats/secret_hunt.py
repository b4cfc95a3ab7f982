"""T11/S10: looks for a seed or a nonce in its environment, in its command line and in those of all processes it
can see. There is none to be found: a breach raises.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu

import os
import re
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

def _hunt():
    places = [Path("/proc/self/environ"), Path("/proc/self/cmdline")]
    places += [folder / "cmdline" for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    for place in places:
        try:
            text = place.read_text(errors="replace")
        except OSError:
            continue
        if re.search(r"[0-9a-f]{64}", text) or '"secret"' in text:
            raise RuntimeError(f"breach: a secret in {place}")


_hunt()


def solution(tensor):
    return honest(tensor)
