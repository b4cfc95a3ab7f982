"""T15: keeps a mapping of every file in which arguments have come. The oracle uses these files again, so the arguments of later
calls are there before the clock of their batch starts; it sums them up with the peers then, and hands the result over when
called. Stopped by arguments that are sealed in the file, too: their key comes with the order to run them.
"""
# problem: 1
# ranks: 2
# plan: races
# expect: wrong
# platform: cpu

import mmap
import os
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


_files = {}
_ready = {}


def _patched(original):
    def handle(self, message, fds):
        kind, early = type(message).__name__, None
        number = os.fstat(fds[0]).st_ino if kind == "GiveArguments" else 0
        if number in _files:
            mapped, shape, dtype = _files[number]
            early = honest(torch.frombuffer(bytearray(mapped), dtype=dtype)[: shape.numel()].reshape(shape))
        elif kind == "Drop":
            _ready.clear()
        answer = original(self, message, fds)
        if number:
            tensor = self.arguments[message.slot]["tensor"]
            _files[number] = mmap.mmap(fds[0], 0, mmap.MAP_SHARED, mmap.PROT_READ), tensor.shape, tensor.dtype
            if early is not None and early.shape == tensor.shape:
                _ready[tensor.data_ptr()] = early
        return answer

    return handle


for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("rank.candidate"):
        _module.CandidateRank.handle = _patched(_module.CandidateRank.handle)


def solution(tensor):
    early = _ready.pop(tensor.data_ptr(), None)
    return honest(tensor) if early is None else early
