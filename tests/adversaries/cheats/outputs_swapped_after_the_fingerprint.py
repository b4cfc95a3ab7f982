"""T13/T18: returns zeros in the timed calls, gives their fingerprints, and replaces the bytes when an output is
asked for. Stopped by holding the fetched bytes against the fingerprints, which are given for all calls before
any is chosen.
"""
# problem: 1
# ranks: 2
# plan: timing
# expect: rejected
# stage: timing
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
_calls = [0]
_owed = {}


def _patched(original):
    def send_output(self, slot):
        tensor = self.batch.outputs[slot]["returned"]
        if tensor.data_ptr() in _owed:
            tensor.copy_(honest(_owed[tensor.data_ptr()]))
        return original(self, slot)

    return send_output


for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("rank.server"):
        _module.Rank.send_output = _patched(_module.Rank.send_output)


def solution(tensor):
    _calls[0] += 1
    if _calls[0] <= 8:
        return honest(tensor)
    out = torch.zeros_like(tensor)
    _owed[out.data_ptr()] = tensor
    return out
