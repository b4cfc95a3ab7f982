"""T15: a slow kernel that learns the key of a timed batch with its first call, opens the arguments of all calls then and computes all
results in that one call. The others take no time, and nearly all of their stamps are small. Stopped by what is quoted having to account
for the time on the host wall clock, as the reported sum does: it is not called faster.
"""
# problem: 1
# ranks: 2
# dtype: fp32
# plan: timing
# expect: correct|rejected
# rule: clock
# gain: none
# platform: cpu

import sys
import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_buffers = {}


def fast(tensor):
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(2, *tensor.shape, dtype=tensor.dtype, device=tensor.device)
        handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
        views = [handle.get_buffer(peer, buffer.shape, tensor.dtype) for peer in range(handle.world_size)]
        _buffers[key] = buffer, handle, views, [0]
    buffer, handle, views, turn = _buffers[key]
    turn[0] ^= 1
    buffer[turn[0]].copy_(tensor)
    handle.barrier(channel=0)
    return torch.add(views[0][turn[0]], views[1][turn[0]])


_ready = {}
_batch = []


def _patched(original):
    def run(self, function, command, **more):
        _ready.clear()
        _batch[:] = [self, command.schedule] if command.schedule.aligned else []
        return original(self, function, command, **more)

    return run


for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("rank.server"):
        _module.Rank.run = _patched(_module.Rank.run)


def slow(tensor):
    time.sleep(0.02)
    return fast(tensor)


def solution(tensor):
    if _batch and not _ready:
        rank, schedule = _batch
        for slot in schedule.slots:
            rank.seals.open(slot, bytes.fromhex(schedule.key))
            theirs = rank.arguments[slot]["tensor"]
            _ready[theirs.data_ptr()] = slow(theirs)
    return _ready.get(tensor.data_ptr()) if _batch else slow(tensor)
