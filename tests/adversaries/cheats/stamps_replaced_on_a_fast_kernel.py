"""T5: a kernel that is honestly somewhat faster than the reference, with stamps that claim a microsecond a call.
That it is faster is true and the host wall clock confirms it; that it is a hundred times faster is a lie. What
is claimed for the device must be borne out, not only the order of the two.
"""
# problem: 1
# ranks: 2
# dtype: fp32
# plan: timing
# expect: rejected
# stage: timing
# rule: clock
# platform: cpu
# xfail: sometimes: a lie of less than 3 ms a call is below what the host wall clock resolves on a shared CPU

import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}
_ticks = [0]


def _stamp(self):
    _ticks[0] += 1000
    return _ticks[0]


for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("rank.devices"):
        vars(_module)["CpuDevice"].stamp = _stamp


def solution(tensor):
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(2, *tensor.shape, dtype=tensor.dtype, device=tensor.device)
        handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
        views = [handle.get_buffer(peer, buffer.shape, tensor.dtype) for peer in range(handle.world_size)]
        _buffers[key] = buffer, handle, views, [0]
    buffer, handle, views, turn = _buffers[key]
    turn[0] ^= 1
    buffer[turn[0]].copy_(tensor)
    handle.barrier(channel=0)
    return torch.add(views[0][turn[0]], views[1][turn[0]])
