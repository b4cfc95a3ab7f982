"""T1: as side_stream_never_waits, but only once calls are timed. Timed outputs are wrong: a race, whatever it was meant to be.
"""
# problem: 1
# ranks: 2
# size: paper
# plan: timing
# expect: race
# stage: timing
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
_calls = [0]


def solution(tensor):
    _calls[0] += 1
    if not _stream:
        _stream.append(torch.cuda.Stream())
    if _calls[0] <= 10:
        _stream[0].wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(_stream[0]):
        out = honest(tensor)
    torch.cuda.current_stream().wait_stream(_stream[0])
    return out
