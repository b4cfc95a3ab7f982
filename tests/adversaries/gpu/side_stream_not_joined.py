"""T1: puts the work on a stream of its own and never joins it, so that marks on the current stream see nothing
of it. Stopped by a mark after the whole device is idle, and by the fingerprint in the order of the timed
stream.
"""
# problem: 1
# ranks: 2
# size: paper
# plan: timing
# expect: rejected
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
    side = _stream[0]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        out = honest(tensor)
    if _calls[0] <= 6:
        torch.cuda.current_stream().wait_stream(side)
    return out
