"""Honest: a ring of put and wait signals in place of barriers; the partial sum goes round, then the total."""
# problem: 1
# ranks: 3
# plan: quick
# expect: correct
# communication: custom
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}


def solution(tensor):
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(tensor.numel(), dtype=torch.float32, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _buffers[key]
    rank, world = handle.rank, handle.world_size
    mine = tensor.reshape(-1).float()
    right = (rank + 1) % world
    theirs = handle.get_buffer(right, buffer.shape, torch.float32)
    for lap in range(2):  # first the sum grows round the ring, then the total is handed on
        if rank == 0 and lap == 0:
            theirs.copy_(mine)
            handle.put_signal(right, channel=0)
        elif rank == 0:
            handle.wait_signal((rank - 1) % world, channel=0)
            theirs.copy_(buffer)
            handle.put_signal(right, channel=0)
        else:
            handle.wait_signal(rank - 1, channel=0)
            total = buffer + mine if lap == 0 else buffer.clone()
            if lap == 0 or rank != world - 1:
                theirs.copy_(total)
                handle.put_signal(right, channel=0)
    out = buffer.to(tensor.dtype).reshape(tensor.shape)
    handle.barrier(channel=1)
    return out
