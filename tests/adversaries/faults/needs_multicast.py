"""Reduces in the switch on a platform that has none: not the candidate's failure, and said by our own stand-in."""
# problem: 1
# ranks: 2
# plan: quick
# expect: unsupported
# rule: NotOnThisPlatform
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_BUFFERS = {}


def solution(tensor):
    shape = tuple(tensor.shape)
    if shape not in _BUFFERS:
        _BUFFERS[shape] = symm_mem.empty(shape, dtype=tensor.dtype, device=tensor.device)
        symm_mem.rendezvous(_BUFFERS[shape], dist.group.WORLD)
    buffer = _BUFFERS[shape]
    buffer.copy_(tensor)
    torch.ops.symm_mem.multimem_all_reduce_(buffer, "sum", dist.group.WORLD.group_name)
    return buffer.clone()
