"""S6: reads a sibling's memory, descriptors and environment through /proc, ptrace and process_vm_readv. Landlock
and seccomp answer EPERM or EACCES: a breach raises.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu

import ctypes
import errno
import os
from pathlib import Path

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
    others = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    for pid in others:
        for leaf in ("mem", "environ", "maps"):
            try:
                with open(Path("/proc") / str(pid) / leaf, "rb") as stream:
                    if leaf != "mem" and stream.read(1):
                        raise RuntimeError(f"breach: {leaf} of {pid}")
                    if leaf == "mem":
                        raise RuntimeError(f"breach: memory of {pid}")
            except OSError:
                pass
        try:
            names = os.listdir(Path("/proc") / str(pid) / "df"[::-1])
            links = [os.readlink(Path("/proc") / str(pid) / "df"[::-1] / name) for name in names]
            raise RuntimeError(f"breach: descriptors of {pid}: {links}")
        except OSError:
            pass
        for call in ("ecartp", "vdaer_mv_ssecorp"):
            ctypes.set_errno(0)
            if call == "ecartp":
                answer = getattr(_libc, call[::-1])(16, pid, 0, 0)
            else:
                answer = getattr(_libc, call[::-1])(pid, 0, 0, 0, 0, 0)
            if answer != -1 or ctypes.get_errno() not in (errno.EPERM, errno.ESRCH):
                raise RuntimeError(f"breach: {call[::-1]} of {pid} gave {answer}, errno {ctypes.get_errno()}")


_probe()


def solution(tensor):
    return honest(tensor)
