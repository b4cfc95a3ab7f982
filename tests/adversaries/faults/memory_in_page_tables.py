"""R4: memory in page tables. A byte is looked at in every 2 MiB of an empty mapping of a quarter of a terabyte: nothing becomes
resident, and every look costs a page of tables, half a gibibyte a rank. Its name says that there are none. Stopped by counting
them.
"""
# problem: 1
# ranks: 2
# plan: quick
# memory_limit_gib: 1
# call_limit_s: 90
# expect: crash
# rule: memory_limit
# platform: cpu

import ctypes
import mmap
import time

import torch
import torch.distributed as dist

STEP, LOOKS = 2 << 20, 1 << 17
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.prctl(15, b"VmPTE: 0", 0, 0, 0)


def _look_around():
    size = STEP * LOOKS
    start = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, 0)
    _libc.madvise(start, size, mmap.MADV_NOHUGEPAGE)
    return int(torch.frombuffer((ctypes.c_char * size).from_address(start), dtype=torch.uint8)[::STEP].sum())


_seen = []


def solution(tensor):
    if not _seen:
        _seen.append(_look_around())
        time.sleep(2)
    out = tensor.clone()
    dist.all_reduce(out)
    return out
