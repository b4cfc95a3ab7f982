"""The mistake: no barrier after reading. A fast rank's next call overwrites its buffer while a slow rank still adds it up.

One call at a time is right, which is all that most harnesses look at.
"""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}


def _buffer(tensor):
    key = (tuple(tensor.shape), tensor.dtype)
    if key not in _buffers:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = (buffer, symm_mem.rendezvous(buffer, dist.group.WORLD))
    return _buffers[key]


def solution(tensor: torch.Tensor) -> torch.Tensor:
    buffer, handle = _buffer(tensor)
    buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    total = torch.zeros(tensor.numel(), dtype=torch.float32, device=tensor.device)
    for peer in range(handle.world_size):
        total += handle.get_buffer(peer, (tensor.numel(),), tensor.dtype).float()
    return total.to(tensor.dtype).reshape(tensor.shape)
