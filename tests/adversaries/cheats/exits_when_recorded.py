"""Host code that notices a recording by torch's stack of modes and leaves its process. Nothing of the recorder calls exit: it is a crash of the
candidate's, as in any other call.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: crash
# stage: races
# platform: cpu

import os

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_S = {}


def solution(tensor):
    if torch._C._len_torch_dispatch_stack() > 0:
        os._exit(0)
    key = (tuple(tensor.shape), tensor.dtype)
    if key not in _S:
        buffer = symm_mem.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        _S[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _S[key]
    buffer.copy_(tensor)
    handle.barrier(channel=0)
    total = torch.zeros(tensor.shape, dtype=torch.float32, device=tensor.device)
    for peer in range(handle.world_size):
        total += handle.get_buffer(peer, tensor.shape, tensor.dtype).float()
    handle.barrier(channel=1)
    return total.to(tensor.dtype)
