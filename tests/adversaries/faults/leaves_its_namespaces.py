"""Makes new namespaces, mounts, changes its root and joins the namespaces of process 1. seccomp answers EPERM
and no capability is left: a breach raises.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu

import ctypes
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


_libc = ctypes.CDLL(None, use_errno=True)


def _probe():
    flags = {"user": 0x10000000, "mount": 0x20000, "net": 0x40000000, "pid": 0x20000000}
    attempts = {f"unshare {name}": lambda flag=flag: _libc.unshare(flag) for name, flag in flags.items()}
    attempts["chroot"] = lambda: _libc.chroot(b".")
    attempts["mount"] = lambda: _libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)
    attempts["umount"] = lambda: _libc.umount2(b"/proc", 2)
    attempts["setns"] = lambda: _libc.setns(os.open("/proc/self/ns/net", os.O_RDONLY), 0)
    attempts["bpf"] = lambda: _libc.syscall(321, 0, 0, 0)
    attempts["setuid"] = lambda: _libc.setgroups(0, None)
    attempts["clock"] = lambda: _libc.clock_settime(0, ctypes.byref((ctypes.c_long * 2)(0, 0)))
    for name, attempt in attempts.items():
        if attempt() != -1:
            raise RuntimeError(f"breach: {name}")


_probe()


def solution(tensor):
    return honest(tensor)
