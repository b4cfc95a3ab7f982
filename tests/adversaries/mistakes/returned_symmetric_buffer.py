"""M13: returns a view of its symmetric buffer, into which its peers push the next call's data. They wait for a barrier that
this rank reaches in its next call only, so a caller who is done with the result by then is safe: a reused output, no race.
"""
# problem: 2
# ranks: 2
# plan: quick
# expect: reused_output
# stage: races
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}


def solution(tensor):
    key = tuple(tensor.shape)
    if key not in _buffers:
        world = dist.get_world_size()
        buffer = symm_mem.empty(world, *tensor.shape, dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _buffers[key]
    handle.barrier(channel=0)
    for peer in range(handle.world_size):
        handle.get_buffer(peer, buffer.shape, tensor.dtype)[handle.rank].copy_(tensor)
    handle.barrier(channel=1)
    return buffer
