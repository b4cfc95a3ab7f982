"""Honest: one float workspace holds the data and, in an integer view of its end, flags that count calls and are never reset.
Poison must take the data and leave the flags alone (control of M1).
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

FLAGS = 64
_state = {}
_epoch = [0]


def _meet(handle, offset):
    _epoch[0] += 1
    for peer in range(handle.world_size):
        handle.get_buffer(peer, (FLAGS,), torch.int32, offset)[handle.rank] = _epoch[0]
    mine = handle.get_buffer(handle.rank, (FLAGS,), torch.int32, offset)
    while int(mine[: handle.world_size].min()) < _epoch[0]:
        pass


def solution(tensor):
    count = -(-tensor.numel() // 2) * 2
    key = tensor.numel(), tensor.dtype
    if key not in _state:
        workspace = symm_mem.empty(count + FLAGS * 4 // tensor.element_size(), dtype=tensor.dtype, device=tensor.device).zero_()
        _state[key] = workspace, symm_mem.rendezvous(workspace, dist.group.WORLD)
        dist.barrier()
    workspace, handle = _state[key]
    offset = count * tensor.element_size() // 4
    workspace[: tensor.numel()].copy_(tensor.reshape(-1))
    _meet(handle, offset)
    total = sum(handle.get_buffer(peer, tensor.shape, tensor.dtype).float() for peer in range(handle.world_size))
    _meet(handle, offset)
    return total.to(tensor.dtype)
