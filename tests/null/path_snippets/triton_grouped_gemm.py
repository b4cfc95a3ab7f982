"""Trap: addresses of this rank's own matrices are turned into pointers (a grouped GEMM); no peers."""
# expect: library
# kernels: grouped=-

import torch
import torch.distributed as dist
import triton
import triton.language as tl


@triton.jit
def grouped(a_ptrs, c_ptrs, BLOCK: tl.constexpr):
    g = tl.program_id(0)
    a = tl.load(a_ptrs + g).to(tl.pointer_type(tl.float16))
    c = tl.load(c_ptrs + g).to(tl.pointer_type(tl.float16))
    at = tl.arange(0, BLOCK)
    tl.store(c + at, tl.load(a + at) * 2)


def solution(xs):
    outs = [torch.empty_like(x) for x in xs]
    a = torch.tensor([x.data_ptr() for x in xs], device="cuda")
    c = torch.tensor([o.data_ptr() for o in outs], device="cuda")
    grouped[(len(xs),)](a, c, BLOCK=256)
    for o in outs:
        dist.all_reduce(o)  # <- library
    return outs
