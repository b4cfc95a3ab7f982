"""Honest, and wrong after a while: epochs in 8 bits, with the highest one seen of each peer kept to save a read. Once they have
wrapped nobody waits any more. Right in every call that is checked on its own and wrong in timed ones, which is no proof of
bad intent: a race.
"""
# problem: 1
# ranks: 2
# plan: timing
# expect: race
# stage: timing
# rule: timed_output
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_state = {}


def _meet(flags, handle, own):
    own["epoch"] = (own["epoch"] + 1) & 255
    for peer in range(handle.world_size):
        handle.get_buffer(peer, flags.shape, torch.uint8)[handle.rank] = own["epoch"]
    for peer in range(handle.world_size):
        while own["seen"][peer] < own["epoch"]:
            flag = int(flags[peer])
            own["seen"][peer] = flag if flag >= own["seen"][peer] else 255  # it has wrapped already, so it has been there


def solution(tensor):
    if "flags" not in _state:
        flags = symm_mem.empty(64, dtype=torch.uint8, device=tensor.device).zero_()
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
