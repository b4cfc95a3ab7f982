"""Honest: a side stream that waits for the current one and is joined, timed. The window must not call it a cheat.
"""
# problem: 1
# ranks: 2
# size: paper
# plan: timing
# expect: correct
# platform: gpu

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


_stream = []


def solution(tensor):
    if not _stream:
        _stream.append(torch.cuda.Stream())
    _stream[0].wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(_stream[0]):
        out = honest(tensor)
    torch.cuda.current_stream().wait_stream(_stream[0])
    tensor.record_stream(_stream[0])
    out.record_stream(torch.cuda.current_stream())
    return out
