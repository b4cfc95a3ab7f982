"""Honest: options as real candidates give them (control of B1), headers and libraries of the system (B2) and a library of
8 MiB (B3).
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

SOURCE = r"""
#include <cmath>
#include <vector>
#include "stdint.h"
#if WIDTH != 4
#error the macro did not arrive
#endif
asm(".section .rodata\n.global table\ntable:\n.fill 1048576, 8, 1\n.text");
extern "C" int width() { std::vector<double> v(WIDTH, 4.0); return int(std::sqrt(v[0] * v.size())); }
"""
LIBRARY = kit.build_cpp(
    SOURCE, name="options",
    options=[
        "-O2", "-std=c++20", "-DWIDTH=4", "-Wall", "-Wno-unused-function", "-ffast-math", "-fno-exceptions", "-mtune=native",
        "-I/usr/include", "-I", ".", "-fopenmp", "-lm",
    ],
)  # fmt: skip
if LIBRARY.width() != 4:
    raise RuntimeError("built wrongly")

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
