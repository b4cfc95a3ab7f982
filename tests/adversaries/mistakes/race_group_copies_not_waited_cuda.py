"""honest/all_reduce_group_copies_cuda.py, which leaves the last copy under way.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: race|wrong
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

SOURCE = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda_bf16.h>
#include <cuda_pipeline.h>
namespace cg = cooperative_groups;
constexpr int TILE = 512;
// The first rank's numbers by the functions of C, those of the others by the group.
extern "C" __global__ void __launch_bounds__(128) sum(const __nv_bfloat16* const* bufs, __nv_bfloat16* out, int world, long long n) {
  __shared__ alignas(16) __nv_bfloat16 stage[2][TILE];
  auto block = cg::this_thread_block();
  for (long long base = (long long)blockIdx.x * TILE; base < n; base += (long long)gridDim.x * TILE) {
    const int count = (int)min((long long)TILE, n - base);
    float total[4] = {};
    if (count == TILE && threadIdx.x < 64) __pipeline_memcpy_async(&stage[0][8 * threadIdx.x], bufs[0] + base + 8 * threadIdx.x, 16);
    if (count != TILE) for (int i = threadIdx.x; i < count; i += 128) stage[0][i] = bufs[0][base + i];
    __pipeline_commit();
    for (int p = 0; p < world; ++p) {
      if (p + 1 < world) cg::memcpy_async(block, stage[(p + 1) % 2], bufs[p + 1] + base, count * sizeof(__nv_bfloat16));
      cg::wait_prior<1>(block);
      for (int k = 0; k < 4; ++k)
        if (127 - (int)threadIdx.x + 128 * k < count) total[k] += __bfloat162float(stage[p % 2][127 - threadIdx.x + 128 * k]);
      block.sync();
    }
    for (int k = 0; k < 4; ++k)
      if (127 - (int)threadIdx.x + 128 * k < count) out[base + 127 - threadIdx.x + 128 * k] = __float2bfloat16(total[k]);
  }
}
"""
KERNEL = kit.compile(SOURCE, name="copied").kernel("sum")

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
