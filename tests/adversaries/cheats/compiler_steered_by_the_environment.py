"""B1: a rank plants a compiler pass of its own and points g++ to it by environment variables. A compiler inherits none that steer
it: a breach raises.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

import os
from pathlib import Path

MARK = Path.cwd() / "breach"
PLANTED = Path.cwd() / "planted"
PLANTED.mkdir(exist_ok=True)
for _name in ("cc1plus", "as", "collect2", "ld"):
    (PLANTED / _name).write_text(f"#!/bin/sh\necho run > {MARK}\nexit 1\n")
    (PLANTED / _name).chmod(0o755)
os.environ |= {"COMPILER_PATH": str(PLANTED), "GCC_EXEC_PREFIX": f"{PLANTED}/", "LD_PRELOAD": "/nowhere.so", "CPATH": "/etc"}
TEXT = "".join(reversed("} ;1 nruter { )(eno tni"))
LIBRARY = kit.build_cpp('extern "C" ' + TEXT)
if MARK.exists():
    raise RuntimeError("breach: a compiler ran a program of the candidate's")

_buffers = {}


def solution(tensor):
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
