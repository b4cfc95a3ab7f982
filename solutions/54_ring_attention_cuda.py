"""Context-parallel attention without a ring: K and V are read from their owners, and causal work is shared out evenly.

Small calls: one launch, a pipeline of turns. In a turn a block publishes K and V of some (batch, head) pairs, meets
the blocks of its peers that publish the same pairs, and attends for its rank's queries, reading K and V where they
lie; scores stay in shared memory.

Large calls: publish, pull the K and V that are needed into (B, positions, heads, D), and let torch's fused kernel
attend over them in one go. A causal rank c needs blocks 0..c only, so the last one would work nearly twice as long as
the mean. Therefore ranks c and W-1-c share their queries: one takes the lower half of the heads of both, the other
the upper half, and gives the partner's part back: every rank attends over W blocks of half the heads. A rank receives
at most KV / 2 for each of W - 1 blocks and Q / 2, and sends O / 2 back; the ring receives (W-1) KV in as many hops.

Links, for K and V of one rank together KV bytes: small calls read what they need of (W-1) KV, in one step a turn; large
ones see above, at most (W-1)/2 KV + (Q + O) / 2 in each direction of a GPU, in three steps.

Large calls wait in launches of one warp that do nothing else (`all_met`): after publishing, after pulling (so the stage
may be written again) and after giving back. Peers may be late by a whole attention, and ranks that share a GPU may be
given the same SMs: a grid that waits must not stand in the way of what it waits for.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
using namespace pkb;
__device__ __forceinline__ float power(float x) { return expf(x); }
__device__ __forceinline__ double power(double x) { return exp(x); }

template <class T, int V>
__device__ __forceinline__ wide_t<T> dot(const char* a, const char* b, u32 width) {
  wide_t<T> sum = 0;
#pragma unroll 4
  for (u32 d = 0; d < width; d += V) {
    if constexpr (V > 1) {
      wide_t<T> x[V] = {}, y[V] = {};
      Lanes<T>::accumulate(x, ld_weak(a + d * Lanes<T>::size));
      Lanes<T>::accumulate(y, ld_weak(b + d * Lanes<T>::size));
#pragma unroll
      for (int e = 0; e < V; ++e) sum += x[e] * y[e];
    } else {
      sum += Lanes<T>::get(a + d * Lanes<T>::size) * Lanes<T>::get(b + d * Lanes<T>::size);
    }
  }
  return sum;
}

// group: pairs of (batch, head) that a block handles in a turn; room: queries whose scores fit shared memory.
template <class T, int V>
__device__ void attend(const Pipe& pipe, const char* q, const char* k, const char* v, char* out, double scale,
                       bool causal, u32 batch, u32 positions, u32 heads, u32 width, u32 group, u32 room) {
  const u32 rank = pipe.rank, world = pipe.world, epoch = pipe.epoch();
  extern __shared__ uint4 memory[];
  auto* scores = reinterpret_cast<wide_t<T>*>(memory);
  constexpr u32 size = Lanes<T>::size;
  const u32 pairs = batch * heads, keys = world * positions, per_pair = positions * width;
  auto* sums = scores + room * keys;
  u32 first, count;  // this turn's pairs
  u64 slot;          // and where they lie in a stage: [pair][K, V][S][D]
  auto begin_turn = [&](u32 turn) {
    first = min((turn * gridDim.x + blockIdx.x) * group, pairs), count = min(group, pairs - first);
    slot = pipe.at(epoch, turn);
  };
  auto at = [&](u32 pair, u32 s) {  // of an argument (B, S, heads, D)
    pair += first;
    return ((u64)(pair / heads * positions + s) * heads + pair % heads) * width * size;
  };
  auto published = [&](u32 owner, u32 pair, u32 value, u32 s) {
    return pipe.slots[owner] + slot + (u64)((pair * 2 + value) * per_pair + s * width) * size;
  };
  auto publish = [&](u32 turn) {
    begin_turn(turn);
    for (u32 i = threadIdx.x; i < count * 2 * per_pair; i += blockDim.x) {
      const u32 pair = i / (2 * per_pair), value = i / per_pair % 2, s = i / width % positions, d = i % width;
      const char* from = (value ? v : k) + at(pair, s);
      Lanes<T>::put(published(rank, pair, value, s) + d * size, Lanes<T>::get(from + d * size));
    }
  };
  auto consume = [&](u32) {
    for (u32 begin = 0; begin < count * positions; begin += room) {
      const u32 queries = min(room, count * positions - begin);
      auto pair_of = [&](u32 n) { return (begin + n) / positions; };
      auto limit_of = [&](u32 n) { return causal ? rank * positions + (begin + n) % positions + 1 : keys; };
      for (u32 i = threadIdx.x; i < queries * keys; i += blockDim.x) {
        const u32 n = i / keys, key = i % keys;
        if (key < limit_of(n))
          scores[i] = (wide_t<T>)scale * dot<T, V>(q + at(pair_of(n), (begin + n) % positions),
                                                   published(key / positions, pair_of(n), 0, key % positions), width);
      }
      __syncthreads();
      for (u32 n = threadIdx.x / 32; n < queries; n += blockDim.x / 32) {  // a warp a query: weights and their sum
        wide_t<T>* row = scores + n * keys;
        wide_t<T> peak = row[0], sum = 0;
        for (u32 j = threadIdx.x % 32; j < limit_of(n); j += 32) peak = row[j] > peak ? row[j] : peak;
        for (int lane = 16; lane; lane /= 2) {
          const wide_t<T> other = __shfl_xor_sync(0xffffffffu, peak, lane);
          peak = other > peak ? other : peak;
        }
        __syncwarp();  // all have read row[0] before it changes
        for (u32 j = threadIdx.x % 32; j < limit_of(n); j += 32) sum += row[j] = power(row[j] - peak);
        for (int lane = 16; lane; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
        if (threadIdx.x % 32 == 0) sums[n] = sum;
      }
      __syncthreads();
      for (u32 i = threadIdx.x; i < queries * width; i += blockDim.x) {
        const u32 n = i / width, d = i % width, limit = limit_of(n);
        wide_t<T> sum = 0;
#pragma unroll 4
        for (u32 j = 0; j < limit; ++j)
          sum += scores[n * keys + j] *
                 Lanes<T>::get(published(j / positions, pair_of(n), 1, j % positions) + d * size);
        Lanes<T>::put(out + at(pair_of(n), (begin + n) % positions) + d * size, sum / sums[n]);
      }
      __syncthreads();  // before the scores are overwritten
    }
  };
  pipeline(pipe, epoch, publish, consume);
}
#define ATTEND(T, V, NAME)                                                                                            \
  extern "C" __global__ void __launch_bounds__(256, 2)                                                                \
      NAME(const __grid_constant__ Pipe pipe, const char* q, const char* k, const char* v, char* out, double scale,   \
           bool causal, u32 batch, u32 positions, u32 heads, u32 width, u32 group, u32 room) {                        \
    attend<T, V>(pipe, q, k, v, out, scale, causal, batch, positions, heads, width, group, room);                     \
  }
ATTEND(f32, 4, vectors_f32) ATTEND(f32, 1, elements_f32)
ATTEND(bf16, 8, vectors_bf16) ATTEND(bf16, 1, elements_bf16)
ATTEND(f16, 8, vectors_f16) ATTEND(f16, 1, elements_f16)
ATTEND(f64, 2, vectors_f64) ATTEND(f64, 1, elements_f64)

// to[b][s] = from[b][s] for all rows; lengths and distances count 16 bytes. Of four rows at once: as many loads fly.
extern "C" __global__ void __launch_bounds__(256)
    copy_rows(char* to, const char* from, u32 batch, u32 positions, u32 row, u64 to_batch, u64 to_row, u64 from_batch,
              u64 from_row) {
  const u32 rows = batch * positions;
  auto place = [&](u32 r, u64 a_batch, u64 a_row) { return r / positions * a_batch + r % positions * a_row; };
  for (u32 r = 4 * blockIdx.x; r < rows; r += 4 * gridDim.x)
    for (u32 i = threadIdx.x; i < row; i += blockDim.x) {
      uint4 v[4];
#pragma unroll
      for (u32 n = 0; n < 4; ++n)
        if (r + n < rows) v[n] = ld_stream(from + 16 * (place(r + n, from_batch, from_row) + i));
#pragma unroll
      for (u32 n = 0; n < 4; ++n)
        if (r + n < rows) st_stream(to + 16 * (place(r + n, to_batch, to_row) + i), v[n]);
    }
}
extern "C" __global__ void all_met(const __grid_constant__ Peers p) { finish_grid(p, 0); }
"""
MODULE = kit.compile(SOURCE, name="context_attention")
SMALL_WORK = 2**27  # multiplications of one rank; above it tensor cores win
THREADS, SCORES = 256, 4096
HALF_BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]  # never `math`
WIDE_BACKENDS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
STATES = {}


class Small:
    """What small calls of one shape share."""

    def __init__(self, k, group):
        (batch, positions, heads, width), size = k.shape, k.element_size()
        vectors = width * size % 16 == 0
        kernel = MODULE.kernel(f"{'vectors' if vectors else 'elements'}_{kit.lanes(k.dtype)}")
        keys, pairs = dist.get_world_size(group) * positions, batch * heads
        sms = kit.staging(16, k.device, name="attention", group=group).sms  # of the rank that has fewest
        room = max(1, SCORES // keys)  # queries at a time
        shared = 8 * room * (keys + 1)
        resident = kernel.resident_blocks(THREADS, shared=shared, sms=sms)  # blocks wait: all must run at once
        pairs_each = max(1, min(-(-THREADS // 32 // positions), -(-pairs // resident)))
        blocks = min(resident, -(-pairs // pairs_each))
        self.turns = -(-pairs // (blocks * pairs_each))
        # In powers of two: few pipelines serve many shapes.
        room_for, slot_bytes = (
            1 << (n - 1).bit_length() for n in (blocks, 16 + pairs_each * 2 * positions * width * size)
        )
        self.pipe = kit.pipeline("attention", blocks=room_for, slot_bytes=slot_bytes, device=k.device, group=group)
        self.sizes = [kit.u32(n) for n in (batch, positions, heads, width, pairs_each, room)]
        self.launch = kernel[blocks, THREADS, shared]

    def __call__(self, q, k, v, scale, causal):
        out = torch.empty_like(q)
        self.launch(self.pipe(self.turns), q, k, v, out, float(scale), bool(causal), *self.sizes)
        return out


class Large:
    """What large calls of one shape share."""

    def __init__(self, k, group):
        shape, nbytes = (4, *k.shape), 4 * k.numel() * k.element_size()  # K, V, Q and what is given back
        self.now = kit.exchange("attention", region_bytes=nbytes, regions=1, exchanges=1, device=k.device, group=group)
        handle, at = self.now.handle, self.now.region // k.element_size()
        self.rank, self.world = handle.rank, handle.world_size
        self.stages = [handle.get_buffer(peer, shape, k.dtype, at) for peer in range(self.world)]
        self.meet = MODULE.kernel("all_met")[1, 32]
        kernel = MODULE.kernel("copy_rows")
        self.copy_rows = kernel[kernel.resident_blocks(256), 256]

    def copy(self, to, source):
        batch, positions, heads, width = to.shape
        vector = 16 // to.element_size()
        sizes = [kit.u32(n) for n in (batch, positions, heads * width // vector)]
        steps = [t.stride(dim) // vector for t in (to, source) for dim in (0, 1)]
        self.copy_rows(to, source, *sizes, *steps)

    def __call__(self, q, k, v, scale, causal):
        batch, positions, heads, width = k.shape
        rank, partner, lower = self.rank, self.world - 1 - self.rank, heads // 2
        shared = causal and partner != rank and lower > 0
        begin, end = (0, heads) if not shared else (0, lower) if rank < partner else (lower, heads)
        blocks = (max(rank, partner) if shared else rank) + 1 if causal else self.world
        for slot, t in enumerate((k, v, q) if shared else (k, v)):
            self.copy(self.stages[rank][slot], t)
        self.meet(self.now.peers)  # all have published
        kv = k.new_empty((2, batch, blocks * positions, end - begin, width))
        for owner in ((rank + n) % blocks for n in range(blocks)):  # not everybody at rank 0 first
            for slot in range(2):
                block = kv[slot][:, owner * positions : (owner + 1) * positions]
                self.copy(block, self.stages[owner][slot][:, :, begin:end])
        if shared:
            queries = q.new_empty((batch, positions, end - begin, width))
            self.copy(queries, self.stages[partner][2][:, :, begin:end])
        self.meet(self.now.peers)  # all have read: the next call may publish

        def attention(query: torch.Tensor, owner: int) -> torch.Tensor:
            length = (owner + 1 if causal else self.world) * positions
            mask = causal_lower_right(positions, length) if causal else None
            q_k_v = (t.transpose(1, 2) for t in (query, *kv[:, :, :length]))
            with sdpa_kernel(HALF_BACKENDS if q.element_size() == 2 else WIDE_BACKENDS, set_priority=True):
                out = F.scaled_dot_product_attention(*q_k_v, attn_mask=mask, scale=scale)
            return out.transpose(1, 2).contiguous()

        own = attention(q[:, :, begin:end], rank)
        if not causal or self.world == 1 or lower == 0:
            return own
        if shared:
            self.copy(self.stages[rank][3][:, :, begin:end], attention(queries, partner))
        self.meet(self.now.peers)  # the partner's part is there
        if not shared:  # the middle one of an odd number of ranks has no partner, but had to come
            return own
        out = torch.empty_like(q)
        self.copy(out[:, :, begin:end], own)
        rest = slice(end, heads) if begin == 0 else slice(0, begin)
        self.copy(out[:, :, rest], self.stages[partner][3][:, :, rest])
        return out  # the next call's second meeting comes before anybody gives back again


def solution(q, k, v, softmax_scale=None, causal=False, group=None):
    if not q.shape == k.shape == v.shape:
        raise ValueError(f"shapes differ: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}")
    group = group or dist.group.WORLD
    key = (k.shape, k.dtype, group)
    if key not in STATES:
        work = k.numel() * k.shape[1] * dist.get_world_size(group)
        aligned = k.shape[3] * k.element_size() % 16 == 0
        STATES[key] = (Small if work <= SMALL_WORK or not aligned else Large)(k, group)
    scale = k.shape[3] ** -0.5 if softmax_scale is None else softmax_scale
    return STATES[key](kit.aligned(q), kit.aligned(k), kit.aligned(v), scale, causal)
