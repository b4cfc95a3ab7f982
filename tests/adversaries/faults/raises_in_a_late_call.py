"""An exception in the 26th call of a process: recorded calls are the first to come so far. As many calls of another start, not recorded, raise it
too, so it is the candidate's and not the recorder's.
"""
# problem: 1
# ranks: 2
# plan: races
# expect: runtime_error
# stage: races
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_S = {}
_calls = [0]


def solution(tensor):
    _calls[0] += 1
    if _calls[0] == 26:
        raise RuntimeError("the 26th call")
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
