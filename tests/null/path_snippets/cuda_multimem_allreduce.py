"""Two-shot NVLS all-reduce: multimem loads and stores, and nothing else on the wire but its barrier."""
# expect: nvls sm_load_store
# kernels: nvls_all_reduce=sm_load_store,nvls

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

SRC = r"""
#include "pkb.cuh"
extern "C" __global__ void nvls_all_reduce(float* mc, unsigned* const* pads, int rank, int world, long long n) {
  pkb::barrier_block(pads, rank, world, blockIdx.x);  // <- sm_load_store
  const long long per = n / 4 / world;
  for (long long i = threadIdx.x; i < per; i += blockDim.x) {
    float* p = mc + 4 * (rank * per + i);
    float a, b, c, d;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0,%1,%2,%3}, [%4];"  // <- nvls
                 : "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "l"(p) : "memory");
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1,%2,%3,%4};" ::  // <- nvls
                 "l"(p), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
  }
  pkb::barrier_block(pads, rank, world, blockIdx.x);  // <- sm_load_store
}
"""
KERNEL = kit.compile(SRC).kernel("nvls_all_reduce")
BUFFERS = {}


def solution(x):
    if x.numel() not in BUFFERS:
        buffer = symm_mem.empty(x.numel(), dtype=x.dtype, device=x.device)
        BUFFERS[x.numel()] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = BUFFERS[x.numel()]
    buffer.copy_(x.view(-1))
    KERNEL[8, 512](kit.multicast(handle), *kit.barrier_pads(handle), x.numel())
    return buffer.view_as(x).clone()
