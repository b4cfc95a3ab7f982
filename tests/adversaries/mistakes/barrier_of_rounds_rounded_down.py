"""A barrier in rounds that double their distance, of which there are floor(log2 W): with 2, 4 and 8 ranks everybody has heard
of everybody, with three each has heard of one peer only."""
# problem: 1
# ranks: 4
# plan: standard
# expect: wrong|race
# says: size tiny, 3 ranks
# platform: cpu
# also: gpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

shared = {}


def meet(handle, channel):
    for step in range(handle.world_size.bit_length() - 1):
        distance = 1 << step
        handle.put_signal((handle.rank + distance) % handle.world_size, channel + step)
        handle.wait_signal((handle.rank - distance) % handle.world_size, channel + step)


def solution(tensor):
    name = (tensor.shape, tensor.dtype)
    if name not in shared:
        memory = symm_mem.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        shared[name] = memory, symm_mem.rendezvous(memory, dist.group.WORLD)
    memory, handle = shared[name]
    memory.copy_(tensor)
    meet(handle, 0)
    parts = [handle.get_buffer(rank, tensor.shape, tensor.dtype).float() for rank in range(handle.world_size)]
    meet(handle, 4)
    return torch.stack(parts).sum(0).to(tensor.dtype)
