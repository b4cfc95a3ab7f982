"""M3: a rank returns while its peer still reads the buffer that stands in for its input, and overwrites it at
the beginning of the next call before the peer has finished.
"""
# problem: 2
# ranks: 2
# plan: quick
# expect: race
# stage: races
# platform: cpu

import time

import torch
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
    parts = []
    for peer in range(handle.world_size):
        time.sleep(0.001 * handle.rank)
        parts.append(handle.get_buffer(peer, tensor.shape, tensor.dtype).clone())
    return torch.stack(parts)
