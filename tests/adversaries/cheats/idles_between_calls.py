"""R2: idles for seconds whenever arguments are handed over or an output is fetched, never in a call: each step stays within its
limit and nothing that is measured changes, but an evaluation takes minutes and its GPU as long. The judge counts what it
waits for outside of calls, and its patience ends.
"""
# problem: 1
# ranks: 2
# plan: quick
# call_limit_s: 5
# expect: crash
# rule: time_limit
# platform: cpu

import sys
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


def _patched(original):
    def handle(self, message, fds):
        if type(message).__name__ != "RunBatch":
            time.sleep(3)
        return original(self, message, fds)

    return handle


for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("rank.candidate"):
        _module.CandidateRank.handle = _patched(_module.CandidateRank.handle)


def solution(tensor):
    return honest(tensor)
