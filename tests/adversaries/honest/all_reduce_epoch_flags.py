"""Honest: flags in an integer symmetric buffer that count calls and are never reset. Poisoning must leave them
alone.
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

_state = {}


def _meet(flags, handle, epoch):
    for peer in range(handle.world_size):
        handle.get_buffer(peer, flags.shape, torch.int32)[handle.rank] = epoch
    while int(flags[: handle.world_size].min()) < epoch:
        pass


def solution(tensor):
    if "flags" not in _state:
        flags = symm_mem.empty(64, dtype=torch.int32, device=tensor.device).zero_()
        _state["flags"] = flags, symm_mem.rendezvous(flags, dist.group.WORLD), [0]
        dist.barrier()
    flags, flag_handle, epoch = _state["flags"]
    key = tuple(tensor.shape)
    if key not in _state:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _state[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _state[key]
    buffer.copy_(tensor.reshape(-1))
    epoch[0] += 1
    _meet(flags, flag_handle, epoch[0])
    total = sum(handle.get_buffer(peer, tensor.shape, tensor.dtype).float() for peer in range(handle.world_size))
    epoch[0] += 1
    _meet(flags, flag_handle, epoch[0])
    return total.to(tensor.dtype)
