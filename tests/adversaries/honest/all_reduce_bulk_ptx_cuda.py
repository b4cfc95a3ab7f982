"""Honest: bulk copies of one dimension into shared memory, with an mbarrier, by the functions of cuda::ptx.
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
#include <cuda/barrier>
#include <cuda/ptx>
#include <cuda_bf16.h>
namespace ptx = cuda::ptx;
constexpr int TILE = 512;
extern "C" __global__ void __launch_bounds__(128) sum(const __nv_bfloat16* const* bufs, __nv_bfloat16* out, int world, long long n) {
  __shared__ alignas(128) __nv_bfloat16 tile[TILE];
  __shared__ alignas(8) uint64_t full;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_proxy_async(ptx::space_shared);
  }
  __syncthreads();
  const long long whole = n / TILE * TILE;
  uint32_t phase = 0;
  for (long long base = (long long)blockIdx.x * TILE; base < whole; base += (long long)gridDim.x * TILE) {
    float total[4] = {};
    for (int p = 0; p < world; ++p, phase ^= 1) {
      if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full, (uint32_t)sizeof(tile));
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, bufs[p] + base, (uint32_t)sizeof(tile), &full);
      }
      while (!ptx::mbarrier_try_wait_parity(&full, phase)) {}
      for (int k = 0; k < 4; ++k) total[k] += __bfloat162float(tile[threadIdx.x + 128 * k]);
      __syncthreads();
    }
    for (int k = 0; k < 4; ++k) out[base + threadIdx.x + 128 * k] = __float2bfloat16(total[k]);
  }
  for (long long i = whole + blockIdx.x * 128ll + threadIdx.x; i < n; i += gridDim.x * 128ll) {
    float total = 0.f;
    for (int p = 0; p < world; ++p) total += __bfloat162float(bufs[p][i]);
    out[i] = __float2bfloat16(total);
  }
}
"""
KERNEL = kit.compile(SOURCE, name="bulk").kernel("sum")

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
