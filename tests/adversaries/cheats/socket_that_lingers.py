"""T10: hands over, in place of an output, a TCP socket with unsent data that waits an hour when it is closed last, and leaves a
dozen more on their way. The judge hung in close(). Descriptors of other kinds than asked for are refused, and closed by a
thread that nobody waits for.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: rejected
# rule: malformed_report
# platform: cpu

import os
import socket
import struct
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


def _lingering():
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
        client.setblocking(False)
        try:
            while True:
                client.send(b"x" * 65536)
        except BlockingIOError:
            pass
        _kept.append(server.detach())
        return client.detach()


_kept, _channel = [], []


def _patched(original):
    def pack(tree):
        description, fd = original(tree)
        os.close(fd)
        return description, _lingering()

    return pack


def _flooded(original):
    def send_output(rank, slot):
        original(rank, slot)
        for _ in range(6):
            sockets = [_lingering(), _lingering()]
            _channel[0].socket.send_fds(rank.channel.sock, [b"I{}"], sockets)
            for fd in sockets:
                os.close(fd)

    return send_output


for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("types.channel"):
        _channel.append(_module)
    if getattr(_module, "__name__", "").endswith("rank.server"):
        _module.pack = _patched(_module.pack)
        _module.Rank.send_output = _flooded(_module.Rank.send_output)


def solution(tensor):
    return honest(tensor)
