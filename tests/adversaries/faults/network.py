"""Connects to the outside, to the host's loopback and to abstract sockets. It is in a network of its own, with a
loopback of its own: a breach raises.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu

import importlib

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


def _probe():
    for address in (("1.1.1.1", 53), ("8.8.8.8", 443), ("127.0.0.1", 22), ("127.0.0.1", 8080), ("169.254.169.254", 80)):
        stream = _sockets.socket()
        stream.settimeout(0.5)
        try:
            stream.connect(address)
        except OSError:
            continue
        finally:
            stream.close()
        raise RuntimeError(f"breach: connected to {address}")


_probe()


def solution(tensor):
    return honest(tensor)
