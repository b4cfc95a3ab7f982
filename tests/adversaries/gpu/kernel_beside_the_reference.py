"""T21: after each batch of its own it leaves a kernel behind that keeps an SM busy while the reference is measured;
that its process is stopped does not stop it. Stopped by the oracle's look at the device before and after the reference
is measured.
"""
# problem: 1
# ranks: 2
# size: paper
# plan: timing
# expect: rejected|correct
# rule: hidden_work
# gain: none
# platform: gpu

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


_stream = []


def _run(original):
    def run(self, function, command, **more):
        torch.cuda.synchronize()
        answer = original(self, function, command, **more)
        if not _stream:
            _stream.append(torch.cuda.Stream())
        with torch.cuda.stream(_stream[0]):
            for _ in range(25):
                torch.cuda._sleep(200_000_000)
        return answer

    return run


for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("rank.server"):
        _module.Rank.run = _run(_module.Rank.run)


def solution(tensor):
    return honest(tensor)
