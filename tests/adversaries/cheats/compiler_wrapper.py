"""B1: an option of g++ that runs a program of the candidate's choice in place of each of its steps. Options pass an allow-list.
The program would have run as the judge's user; what it does here is harmless.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: rejected
# stage: build
# rule: compiler_option
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

LIBRARY = kit.build_cpp('extern "C" int one() { return 1; }', options=["-wrapper", "env,BREACH=1"])

_buffers = {}


def solution(tensor):
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
