"""T18: in timed batches it announces the digests of zeros, and when an output is fetched it bends the right result, one
element by one unit in the last place, until the digest is met. That worked with sums, where one element can be chosen
to make up for all others. Stopped by a digest that is a real hash.
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


_idle = [False]
_owed = {}


def _run(original):
    def run(self, function, command, **more):
        _idle[0] = command.schedule.digests and len(command.schedule.slots) > 1  # one by one they are looked at
        _key[0] = command.schedule.key
        try:
            return original(self, function, command, **more)
        finally:
            _idle[0] = False

    return run


_key = [""]


def _bend(seals, tensor, wanted):
    """A result within tolerance that has the digest that was announced."""
    bits = tensor.view(torch.int16).reshape(-1)
    give_up = time.perf_counter() + 0.3
    for place in range(bits.numel()):
        bits[place] ^= 1
        if seals.digest(tensor, bytes.fromhex(_key[0])) == wanted or time.perf_counter() > give_up:
            return
        bits[place] ^= 1


def _send_output(original):
    def send_output(self, slot):
        tensor = self.batch.outputs[slot]["returned"]
        if tensor.data_ptr() in _owed:
            announced = self.seals.digest(tensor, bytes.fromhex(_key[0]))
            tensor.copy_(honest(_owed[tensor.data_ptr()]))
            _bend(self.seals, tensor, announced)
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
