"""Honest: a source and options that only running tells, built inside a rank (control of B1 at run time).
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

WIDTH = sum(range(4))
LIBRARY = kit.build_cpp("\n".join(["#include <cstdint>", f'extern "C" int width() {{ return {WIDTH} * N; }}']), options=[f"-DN={WIDTH}"])
if LIBRARY.width() != 36:
    raise RuntimeError("built wrongly")

_buffers = {}


def solution(tensor):
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
