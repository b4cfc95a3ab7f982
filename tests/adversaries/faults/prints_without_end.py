"""R3: prints for as long as a call may take, as fast as it can. The judge reads 64 MiB, and 8 MiB for each call and rank, and
then ends the side: within a second or two, whatever the limit on calls.
"""
# problem: 1
# ranks: 2
# plan: quick
# call_limit_s: 60
# expect: crash
# rule: output_limit
# platform: cpu

import os
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


_line = b"x" * (1 << 20)


def solution(tensor):
    until = time.monotonic() + 50
    while time.monotonic() < until:
        os.write(1, _line)
    return honest(tensor)
