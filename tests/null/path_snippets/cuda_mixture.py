"""NVLS for large tensors, copy engine for the tail, a library barrier at the end."""
# expect: nvls copy_engine library

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

SRC = r"""
extern "C" __global__ void add_all(float* mc, float* out, long long n) {
  for (long long i = threadIdx.x; i < n; i += blockDim.x)
    asm volatile("multimem.ld_reduce.weak.global.add.f32 %0, [%1];" : "=f"(out[i]) : "l"(mc + i));  // <- nvls
}
"""
KERNEL = kit.compile(SRC).kernel("add_all")


def tail(handle, out, first):
    for r in range(handle.world_size):
        part = handle.get_buffer(r, (16,), out.dtype, first)
        out[r].copy_(part, non_blocking=True)  # <- copy_engine


def solution(x, group):
    handle = symm_mem.rendezvous(x, group)
    out = torch.empty_like(x)
    KERNEL[1, 256](kit.multicast(handle), out, x.numel())
    tail(handle, out, x.numel() - 16)
    dist.barrier(group)  # <- library
    return out
