"""T12: replaces what its rank says about the walls around it, twelve thousand layers that all stand. The report was given before
the candidate was loaded, and nobody asks again.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
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


class _Facts(dict):
    def __or__(self, other):
        return self


_forged = _Facts({f"layer {number}": "on: forged" for number in range(12_000)} | {"files": "on: forged"})

for _module in list(vars(sys)["modules"].values()):
    _name = getattr(_module, "__name__", "")
    if _name.endswith(("rank.candidate", "rank.warden", "rank.server")) or _name == "__main__":
        for _word in ("facts", "lock_down"):
            if _word in vars(_module):
                setattr(_module, _word, lambda *given, **named: dict(list(_forged.items())[:60]))
        if hasattr(_module, "CandidateRank"):
            _module.CandidateRank.isolation = _forged


def solution(tensor):
    return honest(tensor)
