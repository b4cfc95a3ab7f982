"""Adds up in float32, beginning with its own tensor: every rank within the tolerance, and all of them different. Replicated weights
drift apart by that, and the problem promises the same bits.
"""
# problem: 1
# ranks: 4
# dtype: fp32
# plan: quick
# expect: wrong
# stage: correctness
# says: not the same bits as on rank 0
# platform: cpu

import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}


def solution(tensor):
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _buffers[key]
    buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    total = tensor.clone()
    for step in range(1, handle.world_size):
        peer = (handle.rank + step) % handle.world_size
        total += handle.get_buffer(peer, tensor.shape, tensor.dtype)
    handle.barrier(channel=1)
    return total
