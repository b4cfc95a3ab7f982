"""Host code that notices a recording by torch's stack of modes and raises in its third trace, so that what the two before have shown would be
lost. They are kept, and the verdict says how the third ended; calls of another start that are not recorded end well, so it may have been the
recorder, and nobody is blamed.
"""
# problem: 1
# ranks: 2
# plan: races
# expect: correct
# checks: one of which covers its first calls; trace 3 of 3 did not end well: error
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_S = {}
_recorded = [0]


def solution(tensor):
    _recorded[0] += torch._C._len_torch_dispatch_stack() > 0
    if _recorded[0] > 6:
        raise RuntimeError("something went wrong")
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
