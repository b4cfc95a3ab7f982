"""M20: reports a count of 400 digits, which Python reads and no float can hold, so that the judge raises when it
computes with it. Stopped by the range that every number of a report has.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: rejected
# rule: malformed report
# platform: cpu

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
    def run(self, message):
        report = original(self, message)
        vars(report.observed)["symmetric"] = 10**400
        return report

    return run


for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("rank.candidate"):
        _module.CandidateRank._run = _patched(_module.CandidateRank._run)


def solution(tensor):
    return honest(tensor)
