"""T1: puts the work on a stream of its own that does not wait for the current one, so that it runs under whatever keeps
the device busy before a call; it joins at the end. It claimed 8.7x. It is a race as well: it does not wait for whoever
writes its argument. Stopped by arguments that are opened in stream order, behind the cover: it finds them sealed.
"""
# problem: 1
# ranks: 2
# size: paper
# plan: quick
# expect: race|wrong
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
    with torch.cuda.stream(_stream[0]):
        out = honest(tensor)
    torch.cuda.current_stream().wait_stream(_stream[0])
    return out
