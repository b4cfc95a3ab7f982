"""Honest: pushes its shard into every peer's buffer."""
# problem: 2
# ranks: 3
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
        buffer = symm_mem.empty(dist.get_world_size(), *tensor.shape, dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _buffers[key]
    handle.barrier(channel=0)
    for peer in range(handle.world_size):
        handle.get_buffer(peer, buffer.shape, tensor.dtype)[handle.rank].copy_(tensor)
    handle.barrier(channel=1)
    return buffer.clone()
