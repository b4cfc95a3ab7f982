"""T13: does nothing in the batches that the host wall clock times, and makes their outputs when one is fetched. It tells
these batches by the orders that its rank gets. Stopped by the digests of all outputs, which close the window.
"""
# problem: 1
# ranks: 2
# size: paper
# plan: timing
# expect: rejected
# stage: timing
# rule: late_output
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


_idle = [False]
_owed = {}


def _run(original):
    def run(self, function, command, **more):
        schedule = command.schedule  # calls that are made one by one are looked at
        _idle[0] = schedule.digests and not schedule.aligned and len(schedule.slots) > 1
        try:
            return original(self, function, command, **more)
        finally:
            _idle[0] = False

    return run


def _send_output(original):
    def send_output(self, slot):
        tensor = self.batch.outputs[slot]["returned"]
        if tensor.data_ptr() in _owed:
            tensor.copy_(honest(_owed[tensor.data_ptr()]))
        return original(self, slot)

    return send_output


for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("rank.server"):
        _module.Rank.run = _run(_module.Rank.run)
        _module.Rank.send_output = _send_output(_module.Rank.send_output)


def solution(tensor):
    if not _idle[0]:
        return honest(tensor)
    out = torch.zeros_like(tensor)
    _owed[out.data_ptr()] = tensor
    return out
