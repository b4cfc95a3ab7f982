"""T5: an honestly fast kernel with a clock that runs at a tenth of its speed. The claimed saving is nearly the
whole time of the reference either way, so a check that asks only for half of the saving lets a speedup ten
times too large pass. Stopped by holding the claimed time itself against the wall clock.
"""
# problem: 1
# ranks: 2
# size: paper
# dtype: fp32
# plan: timing
# expect: rejected|correct
# rule: clock
# gain: none
# platform: cpu

import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}
_true_clock = time.monotonic_ns
vars(__import__("emit"[::-1]))["sn_cinotonom"[::-1]] = lambda: _true_clock() // 10


def solution(tensor):
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(2, tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _buffers[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD), [0]
    buffer, handle, turn = _buffers[key]
    turn[0] ^= 1
    buffer[turn[0]].copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    shape, offset = (tensor.numel(),), turn[0] * tensor.numel()
    parts = [handle.get_buffer(peer, shape, tensor.dtype, offset) for peer in range(handle.world_size)]
    total = torch.add(parts[0], parts[1])
    for part in parts[2:]:
        total += part
    return total.reshape(tensor.shape)
