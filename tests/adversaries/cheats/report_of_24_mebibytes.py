"""M20: adds 24 MiB of empty objects to a report, which take gigabytes in the judge once they are read. Stopped by
the size that each kind of report may have, before any of it is read.
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
    def encode(message):
        text = original(message)
        if type(message).__name__ != "BatchReport":
            return text
        return text[:-1] + b',"more":[' + b"{}," * (8 << 20) + b"{}]}"

    return encode


for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("types.channel"):
        _module.encode = _patched(_module.encode)


def solution(tensor):
    return honest(tensor)
