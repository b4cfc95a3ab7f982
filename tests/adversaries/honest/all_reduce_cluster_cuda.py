"""Honest: clusters of two blocks, one adds what lies in the shared memory of the other.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu
# also: gpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

SOURCE = r"""
#include <cooperative_groups.h>
#include <cuda_bf16.h>
namespace cg = cooperative_groups;
// A cluster of two blocks shares the ranks among its blocks, and the first adds what the second has found.
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128)
sum(const __nv_bfloat16* const* bufs, __nv_bfloat16* out, int world, long long n) {
  __shared__ float part[128];
  auto cluster = cg::this_cluster();
  const unsigned me = cluster.block_rank(), blocks = cluster.num_blocks();
  for (long long base = blockIdx.x / blocks * 128ll; base < n; base += gridDim.x / blocks * 128ll) {
    const long long i = base + threadIdx.x;
    float total = 0.f;
    for (int p = me; p < world && i < n; p += blocks) total += __bfloat162float(bufs[p][i]);
    part[threadIdx.x] = total;
    cluster.sync();
    if (me == 0 && i < n) out[i] = __float2bfloat16(total + cluster.map_shared_rank(part, 1)[threadIdx.x]);
    cluster.sync();
  }
}
"""
KERNEL = kit.compile(SOURCE, name="clustered").kernel("sum")

_B = {}


def solution(tensor: torch.Tensor) -> torch.Tensor:
    x = tensor.contiguous()
    key = x.numel(), x.dtype
    if key not in _B:
        b = symm_mem.empty(x.numel() + 8, dtype=x.dtype, device=x.device)
        _B[key] = b, symm_mem.rendezvous(b, dist.group.WORLD)
    b, h = _B[key]
    b[: x.numel()].copy_(x.view(-1))
    h.barrier(channel=0)
    out = torch.empty_like(x)
    KERNEL[4, 128](kit.ptr(h.buffer_ptrs_dev), out, kit.i32(h.world_size), x.numel())
    h.barrier(channel=1)
    return out
