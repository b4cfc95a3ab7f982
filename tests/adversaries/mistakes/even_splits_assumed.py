"""M23: assumes that every rank sends every rank the same number of rows. Stopped by ragged splits."""
# problem: 27
# ranks: 2
# plan: quick
# expect: wrong
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}


def solution(local_tensor, input_split_sizes=None, output_split_sizes=None, group=None):
    rows, width = 256, local_tensor.shape[1]
    if width not in _buffers:
        buffer = symm_mem.empty(rows, width, dtype=local_tensor.dtype, device=local_tensor.device)
        _buffers[width] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _buffers[width]
    world = handle.world_size
    piece = local_tensor.shape[0] // world
    buffer[: local_tensor.shape[0]].copy_(local_tensor)
    handle.barrier(channel=0)
    theirs = [
        handle.get_buffer(p, buffer.shape, buffer.dtype)[handle.rank * piece : (handle.rank + 1) * piece]
        for p in range(world)
    ]
    out = torch.cat(theirs)
    handle.barrier(channel=1)
    return out
