"""RoPE fused into an all-gather: rotate chunk by chunk into slots, pull the peers' chunks into the result.

One launch. A block rotates a chunk of head rows in registers and stores it twice, in a slot of symmetric memory and in
its own result; then it fetches the same chunk of all peers straight into the gathered layout. With a shard of S bytes
a rank reads S and the tables and writes W S. The slots are few and used again, so what is pulled was written
microseconds ago and lies in the owner's L2: it never costs a trip to memory.

Links: (W-1) S in each direction of a GPU, which no algorithm can go below, peers in turn from the neighbour on. Steps:
one a turn, hidden behind other blocks.

Synchronisation: `pkb::pipeline`. Block b only reads what the blocks b of its peers have announced, and produces AHEAD
chunks ahead of what it pulls. The same counts say that a slot may be written again: no barrier, neither in a call nor
between calls.

No NVLS: a multicast store comes back to its sender too, so W S would enter every GPU.
"""

from functools import cache

import torch
import torch.distributed as dist

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
using namespace pkb;

// A unit is 16 bytes where half a head is a multiple of that, else one element. Places and sizes below count units.
template <class T, int V>
struct Unit {
  static constexpr u64 bytes = V * Lanes<T>::size;
  using wide = wide_t<T>;
  __device__ __forceinline__ static void load(wide (&x)[V], const char* p, u64 unit, bool once) {
    if constexpr (V > 1) {
#pragma unroll
      for (int e = 0; e < V; ++e) x[e] = 0;
      Lanes<T>::accumulate(x, once ? ld_once(p + bytes * unit) : ld_weak(p + bytes * unit));
    } else x[0] = Lanes<T>::get(p + bytes * unit);
  }
  __device__ __forceinline__ static void store(char* p, u64 unit, const wide (&x)[V], bool leaving) {
    if constexpr (V == 1) Lanes<T>::put(p + bytes * unit, x[0]);
    else if (leaving) st_leaving(p + bytes * unit, Lanes<T>::pack(x));
    else st_weak(p + bytes * unit, Lanes<T>::pack(x));
  }
};

struct Tensor {  // one of q and k
  const char* in;
  char* out;
  u32 heads, rows, slab;  // rows: heads of all positions; slab: units of a batch entry's positions
  __device__ __forceinline__ u64 place(u32 unit, u32 world) const {  // in the result, if this were rank 0's shard
    return unit + (u64)(unit / slab) * (world - 1) * slab;
  }
};

template <class T, int V>
__device__ __forceinline__ void rotate(const Tensor& t, char* slot, const char* cos, const char* sin, u32 row0,
                                       u32 row1, u32 units, u32 world, u32 rank) {
  using U = Unit<T, V>;
  using wide = wide_t<T>;
  const u32 half = units / 2;
  for (u32 i = threadIdx.x; i < (row1 - row0) * half; i += blockDim.x) {
    const u32 row = i / half, j = i % half, unit = (row0 + row) * units + j;
    const u32 table = (row0 + row) / t.heads * units + j;
    wide a[V], b[V], ca[V], cb[V], sa[V], sb[V];
    U::load(a, t.in, unit, true);
    U::load(b, t.in, unit + half, true);
    U::load(ca, cos, table, false);  // the same for all heads of a position: worth keeping in L1
    U::load(cb, cos, table + half, false);
    U::load(sa, sin, table, false);
    U::load(sb, sin, table + half, false);
#pragma unroll
    for (int e = 0; e < V; ++e) {
      const wide x = a[e], y = b[e];
      a[e] = x * ca[e] - y * sa[e];
      b[e] = y * cb[e] + x * sb[e];
    }
    U::store(slot, row * units + j, a, false);
    U::store(slot, row * units + j + half, b, false);
    const u64 at = t.place(unit, world) + (u64)rank * t.slab;  // both halves lie in the same slab
    U::store(t.out, at, a, true);
    U::store(t.out, at + half, b, true);
  }
}

// UNITS units from each of PEERS peers fly at once. What needs a division is computed once for all peers.
template <class T, int V>
__device__ __forceinline__ void pull(const Tensor& t, char* const* slots, u64 slot, u32 first, u32 count, u32 world,
                                     u32 rank) {
  constexpr u64 bytes = Unit<T, V>::bytes;
  for (u32 i = threadIdx.x; i < count; i += UNITS * blockDim.x) {
    char* to[UNITS];
#pragma unroll
    for (u32 m = 0; m < UNITS; ++m) to[m] = t.out + bytes * t.place(first + i + m * blockDim.x, world);
    for (u32 k = 1; k < world; k += PEERS) {
      uint4 v[PEERS][UNITS];
#pragma unroll
      for (u32 p = 0; p < PEERS; ++p) {
        const u32 next = rank + k + p, peer = next < world ? next : next - world;  // not everybody at rank 0 first
        if (k + p >= world) break;
        const char* from = slots[peer] + slot + bytes * i;
#pragma unroll
        for (u32 m = 0; m < UNITS; ++m) {
          if (i + m * blockDim.x >= count) break;
          if constexpr (V > 1) v[p][m] = ld_stream(from + bytes * m * blockDim.x);
          else Lanes<T>::put(to[m] + bytes * peer * t.slab, Lanes<T>::get(from + bytes * m * blockDim.x));
        }
      }
#pragma unroll
      for (u32 p = 0; p < PEERS; ++p) {
        const u32 next = rank + k + p, peer = next < world ? next : next - world;
        if (k + p >= world) break;
#pragma unroll
        for (u32 m = 0; m < UNITS && V > 1; ++m)
          if (i + m * blockDim.x < count) st_leaving(to[m] + bytes * peer * t.slab, v[p][m]);
      }
    }
  }
}

template <class T, int V>
__device__ __forceinline__ void gather(const Pipe& pipe, const Tensor& q, const Tensor& k, const char* cos,
                                       const char* sin, u32 units, u32 chunk) {
  extern __shared__ char* slots[];  // of all ranks
  const u32 rank = pipe.rank, world = pipe.world, epoch = pipe.epoch();
  for (u32 peer = threadIdx.x; peer < world; peer += blockDim.x) slots[peer] = pipe.slots[peer];
  __syncthreads();

  const u32 q_chunks = (q.rows + chunk - 1) / chunk, chunks = q_chunks + (k.rows + chunk - 1) / chunk;
  auto each = [&](u32 turn, auto&& work) {  // chunk `turn` of this block: some rows of q, or some of k
    const u32 number = blockIdx.x + turn * gridDim.x;
    if (number >= chunks) return;
    const Tensor t = number < q_chunks ? q : k;
    const u32 row0 = (number < q_chunks ? number : number - q_chunks) * chunk;
    work(t, pipe.at(epoch, turn), row0, row0 + chunk < t.rows ? row0 + chunk : t.rows);
  };
  auto produce = [&](u32 turn) {
    each(turn, [&](const Tensor& t, u64 slot, u32 row0, u32 row1) {
      rotate<T, V>(t, slots[rank] + slot, cos, sin, row0, row1, units, world, rank);
    });
  };
  auto consume = [&](u32 turn) {
    each(turn, [&](const Tensor& t, u64 slot, u32 row0, u32 row1) {
      pull<T, V>(t, slots, slot, row0 * units, (row1 - row0) * units, world, rank);
    });
  };
  pipeline(pipe, epoch, produce, consume);
}

#define KERNEL(T, V, NAME)                                                                                             \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                        \
      NAME(const __grid_constant__ Pipe pipe, const char* q, const char* k, const char* cos, const char* sin,          \
           char* q_out, char* k_out, u32 positions, u32 batch, u32 heads, u32 kv_heads, u32 width, u32 chunk) {        \
    const u32 units = width / V, rows = batch * positions;                                                             \
    gather<T, V>(pipe, Tensor{q, q_out, heads, rows * heads, positions * heads * units},                               \
                 Tensor{k, k_out, kv_heads, rows * kv_heads, positions * kv_heads * units}, cos, sin, units, chunk);   \
  }
KERNEL(f32, 4, vectors_f32)
KERNEL(bf16, 8, vectors_bf16)
KERNEL(f16, 8, vectors_f16)
KERNEL(f64, 2, vectors_f64)
KERNEL(f32, 1, elements_f32)
KERNEL(bf16, 1, elements_bf16)
KERNEL(f16, 1, elements_f16)
KERNEL(f64, 1, elements_f64)
"""
THREADS = 256
BLOCKS = 3  # on an SM: bounds registers
AHEAD = 0
UNITS = 2  # that a thread fetches at once,
PEERS = 4  # from so many peers
CHUNK_BYTES = 8 * 1024
MAX_BLOCKS = 396  # three on each of 132 SMs
MODULE = kit.compile(
    SOURCE,
    name="rope_allgather",
    options=[
        f"-DTHREADS={THREADS}",
        f"-DBLOCKS={BLOCKS}",
        f"-DUNITS={UNITS}",
        f"-DPEERS={PEERS}",
    ],
)


@cache
def plan(group, q_shape, k_shape, dtype, device):
    """What calls of these shapes share: the launch, the pipeline, rows of a chunk and turns of a block."""
    world, width = dist.get_world_size(group), q_shape[-1]
    vectors = width // 2 * dtype.itemsize % 16 == 0  # by the shape alone, so that all ranks decide alike
    kernel = MODULE.kernel(f"{'vectors' if vectors else 'elements'}_{kit.lanes(dtype)}")
    row_bytes, rows = width * dtype.itemsize, [shape.numel() // width for shape in (q_shape, k_shape)]
    slot_bytes = -(-max(CHUNK_BYTES, row_bytes) // 16) * 16
    pipe = kit.pipeline("rope", blocks=MAX_BLOCKS, slot_bytes=slot_bytes, ahead=AHEAD, device=device)
    resident = pipe.resident_blocks(kernel, THREADS, shared=8 * world)  # blocks wait for peers: all must run at once
    chunk = max(1, min(CHUNK_BYTES // row_bytes, -(-sum(rows) // resident)))
    chunks = sum(-(-n // chunk) for n in rows)
    blocks = min(resident, chunks)
    return kernel[blocks, THREADS, 8 * world], pipe, chunk, -(-chunks // blocks)


def solution(
    q_local: torch.Tensor, k_local: torch.Tensor, cos_local: torch.Tensor, sin_local: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    if q_local.shape[-1] % 2 or k_local.shape[-1] % 2:
        raise ValueError(f"head sizes {q_local.shape[-1]} and {k_local.shape[-1]} must be even")
    q, k, cos, sin = (kit.aligned(t) for t in (q_local, k_local, cos_local, sin_local))
    launch, pipe, chunk, turns = plan(dist.group.WORLD, q.shape, k.shape, q.dtype, q.device)
    batch, positions, heads, width = q.shape
    q_out, k_out = (t.new_empty((batch, pipe.world * positions, *t.shape[2:])) for t in (q, k))
    sizes = [kit.u32(n) for n in (positions, batch, heads, k.shape[2], width, chunk)]
    launch(pipe(turns), q, k, cos, sin, q_out, k_out, *sizes)
    return q_out, k_out
