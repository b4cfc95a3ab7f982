"""Honest: epochs in 32 bits, with the highest one seen of each peer kept to save a read, through as many calls as
`mistakes/race_epoch_of_8_bits`, which wraps.
"""
# problem: 1
# ranks: 2
# plan: timing
# expect: correct
# communication: custom
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_state = {}


def _meet(flags, handle, own):
    own["epoch"] = own["epoch"] + 1
    for peer in range(handle.world_size):
        handle.get_buffer(peer, flags.shape, torch.int32)[handle.rank] = own["epoch"]
    for peer in range(handle.world_size):
        while own["seen"][peer] < own["epoch"]:
            own["seen"][peer] = max(own["seen"][peer], int(flags[peer]))


def solution(tensor):
    if "flags" not in _state:
        flags = symm_mem.empty(64, dtype=torch.int32, device=tensor.device).zero_()
        handle = symm_mem.rendezvous(flags, dist.group.WORLD)
        _state["flags"] = flags, handle, {"epoch": 0, "seen": [0] * handle.world_size}
        dist.barrier()
    key = tuple(tensor.shape)
    if key not in _state:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _state[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _state[key]
    _meet(*_state["flags"])
    buffer.copy_(tensor.reshape(-1))
    _meet(*_state["flags"])
    total = sum(handle.get_buffer(peer, tensor.shape, tensor.dtype).float() for peer in range(handle.world_size))
    _meet(*_state["flags"])
    return total.to(tensor.dtype)
