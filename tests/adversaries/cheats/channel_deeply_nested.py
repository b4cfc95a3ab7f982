"""T10: sends a message nested a hundred thousand levels deep, so that the judge's own parser runs out of stack.
Stopped by catching that as a malformed message.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: rejected
# rule: malformed_report
# platform: cpu

import importlib
import os

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
_sockets = importlib.import_module("tekcos"[::-1])


def solution(tensor):
    for fd in range(3, 256):
        try:
            channel = vars(_sockets)["tekcos"[::-1]](**{"onelif"[::-1]: os.dup(fd)})
            if channel.family == _sockets.AF_UNIX and channel.type == _sockets.SOCK_SEQPACKET:
                channel.send(b"I" + b"[" * 30000)
            channel.close()
        except OSError:
            pass
    return honest(tensor)
