"""M6: torch's own one-shot reduction on symmetric memory. Right, and library code, not a kernel of the
candidate's.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# communication: library
# platform: gpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}


def solution(tensor):
    key = tuple(tensor.shape)
    if key not in _buffers:
        rounded = -(-tensor.numel() // 64) * 64
        buffer = symm_mem.empty(rounded, dtype=tensor.dtype, device=tensor.device)
        symm_mem.rendezvous(buffer, dist.group.WORLD)
        _buffers[key] = buffer
    buffer = _buffers[key]
    buffer[: tensor.numel()].copy_(tensor.reshape(-1))
    out = torch.ops.symm_mem.one_shot_all_reduce(buffer, "sum", dist.group.WORLD.group_name)
    return out[: tensor.numel()].reshape(tensor.shape).clone()
