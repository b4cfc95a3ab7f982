"""Trap: a table of pointers to this rank's own matrices; the communication is a library's."""
# expect: library
# kernels: grouped=-

import torch
import torch.distributed as dist
from pkb import kit

SRC = r"""
extern "C" __global__ void grouped(const float* const* a, float* const* c, int n) {
  int i = threadIdx.x;
  c[blockIdx.x][i] = a[blockIdx.x][i] * 2.f;
}
"""
KERNEL = kit.compile(SRC).kernel("grouped")


def solution(xs):
    outs = [torch.empty_like(x) for x in xs]
    a = torch.tensor([x.data_ptr() for x in xs], dtype=torch.int64, device=xs[0].device)
    c = torch.tensor([o.data_ptr() for o in outs], dtype=torch.int64, device=xs[0].device)
    KERNEL[len(xs), 256](a, c, kit.i32(256))
    flat = torch.cat([o.view(-1) for o in outs])
    dist.all_reduce(flat)  # <- library
    return flat
