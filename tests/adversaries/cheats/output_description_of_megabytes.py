"""M20: describes its output by 60 MB of text, so that the oracle, to whom it is relayed, fails and the verdict would be
harness_error. Stopped by bounds on every description, checked before it is relayed.
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
    def pack(tree):
        description, fd = original(tree)
        vars(description)["keys"] = tuple(chr(233) * 3000000 for _ in description.keys)
        return description, fd

    return pack


for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("rank.server"):
        _module.pack = _patched(_module.pack)
        _module.encode = lambda message: b""


def solution(tensor):
    return honest(tensor)
