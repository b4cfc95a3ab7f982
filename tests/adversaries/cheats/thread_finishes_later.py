"""T2: a thread does the work after solution() has returned, in the gap before the next timed call. Stopped by a
fingerprint of the output taken straight after the end mark of every timed call: it cannot be that of the
finished result.
"""
# problem: 1
# ranks: 2
# size: paper
# plan: timing
# expect: rejected
# stage: timing
# platform: cpu
# also: gpu

import threading
import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}


def honest(tensor):
    """All-reduce on symmetric memory as an honest candidate does it."""
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _buffers[key]
    buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    total = torch.zeros(tensor.numel(), dtype=torch.float32, device=tensor.device)
    for peer in range(handle.world_size):
        total += handle.get_buffer(peer, (tensor.numel(),), tensor.dtype).float()
    handle.barrier(channel=1)
    return total.to(tensor.dtype).reshape(tensor.shape)
_calls = [0]
_last = [None]


def solution(tensor):
    _calls[0] += 1
    if _calls[0] <= 6:  # behaves while outputs are looked at one by one
        return honest(tensor)
    out = torch.zeros_like(tensor)

    def finish(before):
        if before is not None:
            before.join()
        out.copy_(honest(tensor))

    _last[0] = threading.Thread(target=finish, args=(_last[0],))
    _last[0].start()
    return out
