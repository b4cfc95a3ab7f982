"""Honest: peers' numbers come through a cuda::pipeline of two stages, and cuda::memcpy_async.
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
#include <cuda/pipeline>
#include <cuda_bf16.h>
namespace cg = cooperative_groups;
constexpr int TILE = 512;
extern "C" __global__ void __launch_bounds__(128) sum(const __nv_bfloat16* const* bufs, __nv_bfloat16* out, int world, long long n) {
  __shared__ alignas(16) __nv_bfloat16 stage[2][TILE];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  for (long long base = (long long)blockIdx.x * TILE; base < n; base += (long long)gridDim.x * TILE) {
    const int count = (int)min((long long)TILE, n - base);
    auto fetch = [&](int p) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, stage[p % 2], bufs[p] + base, count * sizeof(__nv_bfloat16), pipe);
      pipe.producer_commit();
    };
    float total[4] = {};
    fetch(0);
    for (int p = 0; p < world; ++p) {
      if (p + 1 < world) fetch(p + 1);
      pipe.consumer_wait();
      for (int k = 0; k < 4; ++k)
        if ((int)threadIdx.x + 128 * k < count) total[k] += __bfloat162float(stage[p % 2][threadIdx.x + 128 * k]);
      pipe.consumer_release();
    }
    for (int k = 0; k < 4; ++k)
      if ((int)threadIdx.x + 128 * k < count) out[base + threadIdx.x + 128 * k] = __float2bfloat16(total[k]);
  }
}
"""
KERNEL = kit.compile(SOURCE, name="pipelined").kernel("sum")

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
