"""S24: writes a torch.py beside itself, into the working folder, into the installed packages and into the
harness. Landlock lets only the working folder be written, from where no process of the judge imports
anything: a breach raises.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu

import importlib
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
    package = Path(importlib.import_module("bkp"[::-1]).__file__).parent
    places = [Path(torch.__file__).parent.parent, Path(torch.__file__).parent, package, package / "rank", Path(__file__).parent]
    for place in places:
        try:
            (place / "torch_planted.py").write_text("raise SystemExit(0)\n")
        except OSError:
            continue
        raise RuntimeError(f"breach: could write to {place}")
    Path("torch.py").write_text("raise SystemExit(0)\n")


_probe()


def solution(tensor):
    return honest(tensor)
