"""S14: sends 8-bit integers with a scale for each block of 128 elements where bf16 is asked for, which is as good as bf16 for numbers
of one size. Stopped by columns that differ in size, each compared by itself.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: wrong
# platform: cpu

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


def solution(tensor):
    flat = tensor.reshape(-1).float()
    blocks = torch.nn.functional.pad(flat, (0, -flat.numel() % 128)).reshape(-1, 128)
    scale = blocks.abs().amax(dim=1, keepdim=True).clamp_min(1e-20) / 127
    sent = (blocks / scale).round().to(torch.int8).float() * scale
    return honest(sent.reshape(-1)[: flat.numel()].reshape(tensor.shape).to(tensor.dtype))
