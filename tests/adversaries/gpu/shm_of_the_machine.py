"""Looks into /dev/shm for segments of the oracle and of others, and leaves files of odd names there. It has become a folder of
the side's own before a candidate is loaded, and goes with it. Honest work otherwise, and it raises on a breach.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
# platform: gpu

import os

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

if others := [name for name in os.listdir("/dev/shm") if not name.startswith("odd name")]:
    raise RuntimeError(f"files of others: {others[:5]}")
with open(f"/dev/shm/odd name {os.environ['RANK']}", "wb") as file:
    file.write(b"left behind" * 1000)

_buffers = {}


def solution(tensor):
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
