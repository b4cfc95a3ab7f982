"""T15: computes the answer when the arguments of a call arrive, before the clock of the batch starts, and only
hands it over when called. It replaces the rank's own handler of messages. Stopped by arguments that arrive sealed: their
key comes with the order to run them.
"""
# problem: 1
# ranks: 2
# size: paper
# plan: timing
# expect: wrong
# stage: correctness
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
_ready = {}


def _patched(original):
    def handle(self, message, fds):
        answer = original(self, message, fds)
        if type(message).__name__ == "GiveArguments":
            tensor = self.arguments[message.slot]["tensor"]
            _ready[tensor.data_ptr()] = honest(tensor)
        elif type(message).__name__ == "Drop":
            _ready.clear()
        return answer

    return handle


for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("rank.candidate"):
        _module.CandidateRank.handle = _patched(_module.CandidateRank.handle)


def solution(tensor):
    return _ready.pop(tensor.data_ptr(), tensor)
