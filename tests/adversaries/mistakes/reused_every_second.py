"""M13: alternates between two output tensors: a result lives for one call more, and is overwritten all the same."""
# problem: 7
# ranks: 2
# plan: quick
# expect: reused_output
# stage: races
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}
_out = {}
_calls = 0


def solution(tensor):
    global _calls
    _calls += 1
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _buffers[key]
    buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    rows = tensor.shape[0] // handle.world_size
    mine = slice(handle.rank * rows, (handle.rank + 1) * rows)
    total = sum(handle.get_buffer(peer, tensor.shape, tensor.dtype)[mine].float() for peer in range(handle.world_size))
    handle.barrier(channel=1)
    out = _out.setdefault((key, _calls % 2), torch.empty_like(tensor[mine]))
    return out.copy_(total)
