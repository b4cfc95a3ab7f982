"""T6: leaves the clock alone and rewrites the finished report of a batch. Stopped by the host wall clock; the
statistics themselves are made in the judge.
"""
# problem: 1
# ranks: 2
# size: paper
# plan: timing
# expect: rejected|correct
# rule: clock
# gain: none
# platform: cpu
# also: gpu

import sys

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

def _patched(original):
    def run(self, function, message, **more):
        answer = original(self, function, message, **more)
        vars(answer)["calls"] = [(start, start + 1000, start + 1000) for start, _, _ in answer.calls]
        return answer

    return run


for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("rank.server"):
        _module.Rank.run = _patched(_module.Rank.run)


def solution(tensor):
    return honest(tensor)
