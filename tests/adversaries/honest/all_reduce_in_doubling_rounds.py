"""Partial sums of twice as many ranks in every round, and the remainder of a number that is no power of two added in before."""
# problem: 1
# ranks: 4
# plan: standard
# expect: correct
# communication: custom
# checks: 2 calls at tiny with 3 ranks, races provoked once
# platform: cpu
# also: gpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

shared = {}


def meet(handle, channel):
    """Rounds that double their distance, as many as it takes to hear of all."""
    for step in range((handle.world_size - 1).bit_length()):
        distance = 1 << step
        handle.put_signal((handle.rank + distance) % handle.world_size, channel + step)
        handle.wait_signal((handle.rank - distance) % handle.world_size, channel + step)


def solution(tensor):
    name = (tensor.shape, tensor.dtype)
    if name not in shared:
        memory = symm_mem.empty(tensor.shape, dtype=torch.float32, device=tensor.device)
        shared[name] = memory, symm_mem.rendezvous(memory, dist.group.WORLD)
    memory, handle = shared[name]
    rank, world = handle.rank, handle.world_size
    whole = 1 << (world.bit_length() - 1)

    def of(peer):
        return handle.get_buffer(peer, tensor.shape, torch.float32)

    total = tensor.float()
    memory.copy_(total)
    meet(handle, 0)
    if rank + whole < world:
        total = total + of(rank + whole)
    distance = 1
    while distance < whole:
        meet(handle, 0)  # whoever reads this rank's part has done so
        memory.copy_(total)
        meet(handle, 0)
        if rank < whole:
            low, high = (total, of(rank ^ distance)) if rank & distance == 0 else (of(rank ^ distance), total)
            total = low + high
        distance *= 2
    meet(handle, 0)
    memory.copy_(total)
    meet(handle, 0)
    result = of(rank - whole if rank >= whole else rank).to(tensor.dtype)
    meet(handle, 0)
    return result
