"""Context-parallel attention with NCCL's device API, without a ring: a warp takes a query and reads K and V of all
ranks where they lie in their windows, with a running maximum.

Links, busiest direction of a GPU: K and V of the W-1 others as often as a warp needs them and L2 does not hold them;
one dependent step. Right at any size, fast at small ones: scores are not computed on tensor cores.

Grids do not wait: launches of one warp meet the peers, after K and V are staged, and after they were read, so that the
next call may stage again.
"""

import torch
import torch.distributed as dist

from pkb import kit
from pkb.kit import nccl_device

SOURCE = r"""
#include <nccl_device.h>
#include "pkb.cuh"
using namespace pkb;
constexpr u32 MOST = 8;  // values of a head that a lane holds
__device__ __forceinline__ float power(float x) { return expf(x); }
__device__ __forceinline__ double power(double x) { return exp(x); }

extern "C" __global__ void all_met(const __grid_constant__ ncclDevComm comm) {
  ncclLsaBarrierSession<ncclCoopCta> meeting{ncclCoopCta(), comm, ncclTeamTagLsa(), 0};
  meeting.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
}

// Tensors are (batch, positions, heads, width); a window holds K, and V `values_at` bytes on.
template <class T>
__device__ void attend(const ncclDevComm& comm, ncclWindow_t window, const char* q, char* out, double scale, u64 values_at,
                       u32 queries, u32 positions, u32 heads, u32 width, bool causal) {
  using Wide = wide_t<T>;
  constexpr u32 size = Lanes<T>::size;
  const u32 rank = comm.rank, world = comm.nRanks, lane = threadIdx.x % 32;
  for (u32 n = (blockIdx.x * blockDim.x + threadIdx.x) / 32; n < queries; n += gridDim.x * blockDim.x / 32) {
    const u32 head = n % heads, position = n / heads % positions, batch = n / heads / positions;
    Wide query[MOST], sum[MOST] = {}, most = -INFINITY, weights = 0;
#pragma unroll
    for (u32 i = 0; i < MOST; ++i) {
      const u32 d = lane + 32 * i;
      query[i] = d < width ? Lanes<T>::get(q + ((u64)n * width + d) * size) * (Wide)scale : Wide(0);
    }
    for (u32 step = 0; step < world; ++step) {
      const u32 owner = (rank + world - step) % world;  // as blocks would come around the ring
      if (causal && owner > rank) continue;
      const char* keys = (const char*)ncclGetLsaPointer(window, 0, owner);
      const char* values = (const char*)ncclGetLsaPointer(window, values_at, owner);
      const u32 end = causal && owner == rank ? position + 1 : positions;
      for (u32 p = 0; p < end; ++p) {
        const u64 at = (((u64)batch * positions + p) * heads + head) * width;
        Wide score = 0;
#pragma unroll
        for (u32 i = 0; i < MOST; ++i) {
          const u32 d = lane + 32 * i;
          if (d < width) score += query[i] * Lanes<T>::get(keys + (at + d) * size);
        }
#pragma unroll
        for (u32 other = 16; other; other /= 2) score += __shfl_xor_sync(~0u, score, other);
        const Wide before = most;
        most = score > most ? score : most;
        const Wide kept = power(before - most), weight = power(score - most);
        weights = weights * kept + weight;
#pragma unroll
        for (u32 i = 0; i < MOST; ++i) {
          const u32 d = lane + 32 * i;
          if (d < width) sum[i] = sum[i] * kept + weight * Lanes<T>::get(values + (at + d) * size);
        }
      }
    }
#pragma unroll
    for (u32 i = 0; i < MOST; ++i) {
      const u32 d = lane + 32 * i;
      if (d < width) Lanes<T>::put(out + ((u64)n * width + d) * size, sum[i] / weights);
    }
  }
}

#define KERNEL(T)                                                                                                        \
  extern "C" __global__ void __launch_bounds__(128, 4)                                                                   \
      attend_##T(const __grid_constant__ ncclDevComm comm, ncclWindow_t window, const char* q, char* out, double scale,  \
                 u64 values_at, u32 queries, u32 positions, u32 heads, u32 width, bool causal) {                         \
    attend<T>(comm, window, q, out, scale, values_at, queries, positions, heads, width, causal);                         \
  }
KERNEL(f32)
KERNEL(bf16)
KERNEL(f16)
KERNEL(f64)
"""
THREADS = 128
MOST_WIDTH = 256
MODULE = kit.compile(SOURCE, name="ring_attention_nccl")


def solution(q, k, v, softmax_scale=None, causal=False, group=None):
    if not q.shape == k.shape == v.shape:
        raise ValueError(f"shapes differ: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}")
    batch, positions, heads, width = q.shape
    if width > MOST_WIDTH:
        raise ValueError(f"heads of at most {MOST_WIDTH} values, not {width}")
    nbytes = k.numel() * k.element_size()
    values_at = -(-nbytes // 16) * 16
    window = nccl_device.window(values_at + nbytes, k.device, group=group or dist.group.WORLD)
    for at, tensor in ((0, k), (values_at, v)):
        window.buffer[at : at + nbytes].view(k.dtype).view(k.shape).copy_(tensor)

    meet, attend = MODULE.kernel("all_met")[1, 32], MODULE.kernel(f"attend_{kit.lanes(q.dtype)}")
    out, queries = torch.empty(q.shape, dtype=q.dtype, device=q.device), batch * positions * heads
    scale = width**-0.5 if softmax_scale is None else softmax_scale
    blocks = max(1, min(attend.resident_blocks(THREADS), -(-queries // (THREADS // 32))))
    sizes = [kit.u32(n) for n in (queries, positions, heads, width)]
    meet(window.comm)  # all have staged K and V
    attend[blocks, THREADS](
        window.comm, window.handle, q.contiguous(), out, float(scale), values_at, *sizes, bool(causal)
    )
    meet(window.comm)  # all have read them
    return out
