"""A kernel writes far out of bounds: an illegal address. On a shared GPU it takes the oracle's processes with
it; the candidate is to blame all the same.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: crash
# platform: gpu

import torch
from pkb import kit

SOURCE = r"""
extern "C" __global__ void wild(unsigned short* out) { out[(1ll << 40) + threadIdx.x] = 1; }
"""
KERNEL = kit.compile(SOURCE, name="wild").kernel("wild")


def solution(tensor):
    out = torch.zeros_like(tensor)
    KERNEL[1, 32](out)
    torch.cuda.synchronize()
    return out
