"""R4: memory in segments of System V, filled and detached: no process maps them and no descriptor leads to them, so that nobody who
counts sees it. Stopped by the limit of the side's own IPC namespace on all of them together.
"""
# problem: 1
# ranks: 2
# plan: quick
# memory_limit_gib: 2
# expect: runtime_error
# says: No space left
# platform: cpu

import ctypes
import os

import torch.distributed as dist

BYTES = 128 << 20
_libc = ctypes.CDLL(None, use_errno=True)
_libc.shmget.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_int]
_libc.shmat.argtypes, _libc.shmat.restype = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int], ctypes.c_void_p
_libc.shmdt.argtypes = [ctypes.c_void_p]
_segments = []


def solution(tensor):
    while len(_segments) < 12:
        segment = _libc.shmget(0, BYTES, 0o1600)
        if segment < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        address = _libc.shmat(segment, None, 0)
        ctypes.memset(address, 1, BYTES)
        _libc.shmdt(address)
        _segments.append(segment)
    out = tensor.clone()
    dist.all_reduce(out)
    return out
