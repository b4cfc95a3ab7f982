"""M16: moves the data through files in shared memory, outside symmetric memory and outside the library. The
values are right; what must not happen is that the verdict says custom, as if a kernel had moved them, so
communication is none or unknown.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# communication: none
# platform: cpu

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

_calls = [0]


def solution(tensor):
    rank, world = dist.get_rank(), dist.get_world_size()
    _calls[0] += 1
    folder = Path("/dev/shm")
    mine = folder / f"piece-{_calls[0]}-{rank}"
    bits = tensor.view(torch.int16).flatten().numpy().tobytes()
    mine.with_suffix(".part").write_bytes(bits)
    os.rename(mine.with_suffix(".part"), mine)
    total = torch.zeros(tensor.numel())
    for peer in range(world):
        theirs = folder / f"piece-{_calls[0]}-{peer}"
        while not theirs.exists():
            time.sleep(0.0005)
        part = torch.frombuffer(bytearray(theirs.read_bytes()), dtype=torch.int16).view(tensor.dtype)
        total += part.float()
    return total.to(tensor.dtype).reshape(tensor.shape)
