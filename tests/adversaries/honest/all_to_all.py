"""Honest: each rank pulls its slice from every peer."""
# problem: 8
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}


def solution(tensor):
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(*tensor.shape, dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _buffers[key]
    buffer.copy_(tensor)
    handle.barrier(channel=0)
    rows = tensor.shape[0] // handle.world_size
    mine = slice(handle.rank * rows, (handle.rank + 1) * rows)
    out = torch.cat([handle.get_buffer(peer, tensor.shape, tensor.dtype)[mine] for peer in range(handle.world_size)])
    handle.barrier(channel=1)
    return out
