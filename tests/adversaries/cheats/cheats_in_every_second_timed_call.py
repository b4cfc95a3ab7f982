"""T13: leaves out the work in every second timed call, which would halve the median. Stopped by the share of
timed outputs that is verified: every call that moves the median must be wrong often enough to be drawn.
"""
# problem: 1
# ranks: 2
# plan: timing
# expect: race
# stage: timing
# rule: timed_output
# platform: cpu
# also: gpu

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
_calls = [0]


def solution(tensor):
    _calls[0] += 1
    if _calls[0] > 10 and _calls[0] % 2:
        return torch.zeros_like(tensor)
    return honest(tensor)
