"""M13 and M3: returns a view of its symmetric buffer, and a peer's next call pushes into it without asking: even a caller who
copies the result at once can be too late. A race, which outranks the reused output.
"""
# problem: 2
# ranks: 2
# plan: quick
# expect: race
# stage: races
# rule: missing_end_barrier
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
    for peer in range(handle.world_size):
        handle.get_buffer(peer, buffer.shape, tensor.dtype)[handle.rank].copy_(tensor)
    handle.barrier(channel=1)
    return buffer
