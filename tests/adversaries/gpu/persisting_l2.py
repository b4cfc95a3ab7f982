"""T16: asks for persisting L2 lines on its buffers. It gains nothing, since persisting lines are reset before
every timed call; it is honest otherwise.
"""
# problem: 1
# ranks: 2
# size: paper
# plan: timing
# expect: correct
# platform: gpu

import ctypes

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


try:
    _cudart = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
    _cudart.cudaDeviceSetLimit(6, ctypes.c_size_t(16 << 20))  # cudaLimitPersistingL2CacheSize
except (OSError, AttributeError):
    _cudart = None


def solution(tensor):
    return honest(tensor)
