"""Returns the product of the exchanged operands: the right elements, transposed."""
# problem: 1
# ranks: 2
# plan: quick
# expect: wrong
# pattern: transposed
# platform: cpu

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
    total = sum(handle.get_buffer(peer, tensor.shape, tensor.dtype).float() for peer in range(handle.world_size))
    handle.barrier(channel=1)
    return total.to(tensor.dtype).transpose(0, -1).reshape(tensor.shape)
