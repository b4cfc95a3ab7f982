"""Ring attention with NVSHMEM: K and V of each (batch, head) pair travel around the ring from block to block.

A block has a pair at a time, the same one on all PEs. It packs its own K and V into slot 0, puts them into slot 1 of the
next PE, and puts on what arrives in slot t into slot t + 1 there, each with a signal behind it: after W - 1 hops it has
the K and V of all PEs, those of PE me - t in slot t. Then a warp takes a query: a running maximum and a running sum, in
float32 (float64 for float64), so that any number of positions will do.

Signal (pair, t) is the number of the last call for which slot t has been filled. The halves of the heap are used in turn.
Who fills slot t + 1 of the next PE again has seen a signal of the call between, and by it that its predecessor had begun
that call; around the ring, that all PEs had ended the one before.

Bytes on the links: (W-1) KV out of each GPU, for K and V of one rank together KV bytes. Dependent steps: W - 1.
"""

import torch
import torch.distributed as dist

from pkb import kit
from pkb.kit import nvshmem

SOURCE = r"""
#include <nvshmem.h>
#include <nvshmemx.h>
#include "pkb.cuh"
using namespace pkb;
constexpr u32 MOST_WIDTH = 256;

// A wait of NVSHMEM is a volatile load: what was put before the signal is behind a fence of our own.
__device__ void await(uint64_t* signal, u64 value) {
  nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, value);
  __threadfence_system();
}
__device__ __forceinline__ float power(float x) { return expf(x); }
__device__ __forceinline__ double power(double x) { return exp(x); }

// slots: [pair][slot][K, V][position][width], with room for `room` bytes of each pair's slot.
template <class T>
__device__ void attend(char* slots, uint64_t* signals, const char* q, const char* k, const char* v, char* out,
                       double scale, bool causal, u32 pairs, u32 positions, u32 heads, u32 width, u64 room, u64 call) {
  using W = wide_t<T>;
  const u32 me = nvshmem_my_pe(), world = nvshmem_n_pes(), next = (me + 1) % world;
  constexpr u32 size = Lanes<T>::size, each = MOST_WIDTH / 32;  // values of a lane
  const u32 row = width * size, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (u32 pair = blockIdx.x; pair < pairs; pair += gridDim.x) {
    auto at = [&](u32 s) { return ((u64)(pair / heads * positions + s) * heads + pair % heads) * row; };  // (B, S, H, D)
    char* mine = slots + (u64)pair * world * room;
    uint64_t* there = signals + (u64)pair * world;
    for (u32 i = threadIdx.x; i < 2 * positions * width; i += blockDim.x) {
      const u32 value = i / (positions * width), s = i / width % positions, d = i % width;
      Lanes<T>::put(mine + (u64)i * size, Lanes<T>::get((value ? v : k) + at(s) + d * size));
    }
    __syncthreads();
    for (u32 t = 0; t < world; ++t) {
      if (t > 0 && threadIdx.x == 0) await(there + t, call);
      __syncthreads();
      if (t + 1 < world)
        nvshmemx_putmem_signal_block(mine + (t + 1) * room, mine + t * room, 2ull * positions * row, there + t + 1, call,
                                     NVSHMEM_SIGNAL_SET, next);
    }
    for (u32 s = warp; s < positions; s += warps) {
      W query[each] = {}, sum[each] = {}, weights = 0, peak = -INFINITY;
      for (u32 n = 0, d = lane; d < width; ++n, d += 32) query[n] = (W)scale * Lanes<T>::get(q + at(s) + d * size);
      for (u32 t = 0; t < world; ++t) {
        const u32 owner = (me + world - t) % world;
        if (causal && owner > me) continue;
        const u32 keys = causal && owner == me ? s + 1 : positions;
        const char *key = mine + t * room, *value = key + (u64)positions * row;
        for (u32 j = 0; j < keys; ++j, key += row, value += row) {
          W score = 0;
          for (u32 n = 0, d = lane; d < width; ++n, d += 32) score += query[n] * Lanes<T>::get(key + d * size);
          for (u32 other = 16; other; other /= 2) score += __shfl_xor_sync(0xffffffffu, score, other);
          const W higher = score > peak ? score : peak, shrink = power(peak - higher), weight = power(score - higher);
          weights = weights * shrink + weight, peak = higher;
          for (u32 n = 0, d = lane; d < width; ++n, d += 32)
            sum[n] = sum[n] * shrink + weight * Lanes<T>::get(value + d * size);
        }
      }
      for (u32 n = 0, d = lane; d < width; ++n, d += 32) Lanes<T>::put(out + at(s) + d * size, sum[n] / weights);
    }
    __syncthreads();
  }
}
#define KERNEL(T)                                                                                                      \
  extern "C" __global__ void attend_##T(char* slots, uint64_t* signals, const char* q, const char* k, const char* v,   \
                                        char* out, double scale, bool causal, u32 pairs, u32 positions, u32 heads,     \
                                        u32 width, u64 room, u64 call) {                                               \
    attend<T>(slots, signals, q, k, v, out, scale, causal, pairs, positions, heads, width, room, call);                \
  }
KERNEL(f32)
KERNEL(bf16)
KERNEL(f16)
KERNEL(f64)
"""
THREADS = 128
MOST_WIDTH = 256
MODULE = kit.compile(SOURCE, name="ring_attention")
calls = 0


def solution(q, k, v, softmax_scale=None, causal=False, group=None):
    global calls
    _, world = nvshmem.start()
    if dist.get_world_size(group) != world:
        raise ValueError("PEs are all ranks; a part of them has no ring of its own")
    if not q.shape == k.shape == v.shape or q.shape[3] > MOST_WIDTH:
        raise ValueError(f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}; heads of {MOST_WIDTH} at most")
    q, k, v = (t.contiguous() for t in (q, k, v))
    batch, positions, heads, width = k.shape
    pairs, room = batch * heads, -(-2 * positions * width * k.element_size() // 16) * 16
    heap = nvshmem.symmetric(2 * pairs * world * room // k.element_size(), k.dtype, name="ring")
    signals = nvshmem.symmetric(pairs * world, torch.int64, name="ring signals")
    kernel = MODULE.kernel(f"attend_{kit.lanes(k.dtype)}")
    blocks = min(pairs, kernel.resident_blocks(THREADS))  # blocks wait: all must run at once
    out = torch.empty_like(q)
    calls += 1
    scale = float(width**-0.5 if softmax_scale is None else softmax_scale)
    sizes = [kit.u32(n) for n in (pairs, positions, heads, width)]
    slots = heap[calls % 2 * (heap.numel() // 2) :]
    kernel[blocks, THREADS](slots, signals, q, k, v, out, scale, bool(causal), *sizes, room, calls)
    return out
