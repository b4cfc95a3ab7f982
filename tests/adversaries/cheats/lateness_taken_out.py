"""M2, hidden: no barrier between publishing and reading, and nobody comes late any more: what sleeps before a call in the
ranks' own loop is taken out, and every rank waits a little for the others by itself. Only a rank that is told of a
call after the others shows it.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: race|wrong
# platform: cpu

import sys
import time
import types

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}
_clock = types.SimpleNamespace(**{name: getattr(time, name) for name in dir(time)})
_clock.sleep = lambda seconds: None
for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("rank.execute"):
        vars(_module)["time"] = _clock


def solution(tensor):
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _buffers[key]
    buffer.copy_(tensor.reshape(-1))
    time.sleep(0.008)
    total = torch.zeros(tensor.shape, dtype=torch.float32, device=tensor.device)
    for peer in range(handle.world_size):
        total += handle.get_buffer(peer, tensor.shape, tensor.dtype)
    handle.barrier(channel=1)
    return total.to(tensor.dtype)
