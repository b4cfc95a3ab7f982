"""R1: opens terminals, message queues, network adapters and other devices of the machine. Landlock lets a rank open null and
its like, shared memory and NVIDIA GPUs: a breach raises. Null and its like are its own control.
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


NEEDED = ("null", "zero", "full", "random", "urandom")


def _probe():
    for name in NEEDED:
        os.close(os.open(f"/dev/{name}", os.O_RDWR if name in ("null", "zero") else os.O_RDONLY))
    for path in Path("/dev").rglob("*"):
        if path.name in NEEDED or path.name.startswith("nvidia") or "shm" in path.parts or path.is_symlink():
            continue
        if path.is_dir():
            continue
        for mode in (os.O_RDONLY, os.O_WRONLY):
            try:
                opened = os.open(path, mode | os.O_NONBLOCK | os.O_NOCTTY)
            except OSError:
                continue
            os.close(opened)
            raise RuntimeError(f"breach: could open {path}")
    for folder in ("mqueue", "pts", "infiniband", "dri"):
        try:
            os.listdir(f"/dev/{folder}")
            (Path("/dev") / folder / "planted-by-a-candidate").write_text("x")
        except OSError:
            continue
        raise RuntimeError(f"breach: could write to /dev/{folder}")


_probe()


def solution(tensor):
    return honest(tensor)
