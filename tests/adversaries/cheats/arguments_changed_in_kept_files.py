"""T15: keeps every file in which arguments have come, and tries to write to it, shorten it, lengthen it, seal it or make its own mapping
writable, also after the oracle has used it again: whoever could would choose the arguments of later calls, or end the oracle by a
signal. A breach raises. Its own control: what it reads there does change.
"""
# problem: 1
# ranks: 2
# plan: races
# expect: correct
# platform: cpu

import ctypes
import fcntl
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


_libc = ctypes.CDLL(None, use_errno=True)
_kept = {}
_changes = set()


def _made_writable(fd):
    _libc.mmap.restype = ctypes.c_void_p
    place = ctypes.c_void_p(
        _libc.mmap(None, ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0))
    )
    failed = _libc.mprotect(place, ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ | mmap.PROT_WRITE)
    _libc.munmap(place, ctypes.c_size_t(mmap.PAGESIZE))
    if failed:
        raise OSError(ctypes.get_errno(), "mprotect")


def _punched(fd):
    if _libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(mmap.PAGESIZE)):
        raise OSError(ctypes.get_errno(), "fallocate")


WAYS = {
    "write": lambda fd: os.pwrite(fd, b"x", 0),
    "shorten": lambda fd: os.truncate(fd, 1),
    "lengthen": lambda fd: os.truncate(fd, 1 << 30),
    "map": lambda fd: mmap.mmap(fd, mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE),
    "make writable": _made_writable,
    "punch": _punched,
    "seal": lambda fd: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE),
    "open": lambda fd: os.pwrite(os.open("/".join(("", "proc", "self", "fd", str(fd))), os.O_RDWR), b"x", 0),
}


def _patched(original):
    def handle(self, message, fds):
        answer = original(self, message, fds)
        if type(message).__name__ == "GiveArguments":
            number = os.fstat(fds[0]).st_ino
            if number not in _kept:
                _kept[number] = os.dup(fds[0]), os.pread(fds[0], 64, 0)
        return answer

    return handle


for _module in list(vars(sys)["modules"].values()):
    if getattr(_module, "__name__", "").endswith("rank.candidate"):
        _module.CandidateRank.handle = _patched(_module.CandidateRank.handle)
_calls = [0]


def solution(tensor):
    _calls[0] += 1
    for number, (fd, first) in _kept.items():
        if os.pread(fd, 64, 0) != first:
            _changes.add(number)
        for name, change in WAYS.items():
            try:
                change(fd)
            except OSError:
                continue
            raise RuntimeError(f"breach: could {name}")
    if _calls[0] == 12 and not _changes:
        raise RuntimeError("no control: no file was used again")
    return honest(tensor)
