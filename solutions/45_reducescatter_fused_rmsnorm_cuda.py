"""Reduce-scatter and RMSNorm in one launch: contributions pass through a few slots, are summed and normalised on chip.

A block takes tiles of rows (one long row, or several short ones) in pieces of about 8 KiB. It pushes its rank's
contribution to a piece into a slot at each owner, adds the peers' contributions to the same piece of its own rows in
float32, in rank order, and keeps the means in shared memory, rounded to the dtype as the reference has them; after a
tile's last piece the rows are normalised and stored. If its rows take S bytes, a rank reads W S, sends and receives
(W-1) S and writes S. What is sent is not stored in memory: the slots are so few that they stay in L2, and all else is
marked to leave it first.

Synchronisation: `pkb::pipeline`. Block b only meets the blocks b of its peers, by counts that say that a piece has
arrived. The same counts say that a slot may be written again: no barrier, neither in a call nor between calls.

Links, busiest direction of a GPU: (W-1) S, peers in turn from the neighbour on. Steps: one a piece, hidden behind other
blocks. No NVLS: where the switch adds, it reads the owner's part over its link too, so W S would leave every GPU.
"""

from functools import cache

import torch
import torch.distributed as dist

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
using namespace pkb;

__device__ __forceinline__ float root(float x) { return rsqrtf(x); }
__device__ __forceinline__ double root(double x) { return rsqrt(x); }
__device__ __forceinline__ void prefetch(const void* p, u32 bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
#endif
}

struct Plan {        // in units: 16 bytes where rows are multiples of that, else one element
  u32 rows, hidden;  // of a rank's block of rows; elements of a row
  u32 tile_rows, pieces, piece;  // rows of a tile, pieces a tile is cut into, units of a piece
};

// Rows of a tile, whose means lie in shared memory: a warp a row, or the block if the tile is one row.
template <class T, int V>
__device__ __forceinline__ void normalise(char* means, wide_t<T>* partial, const Plan& plan, u32 tile,
                                          const char* gamma, char* out, double eps) {
  using wide = wide_t<T>;
  constexpr u32 unit_bytes = V * Lanes<T>::size;
  const u32 row0 = tile * plan.tile_rows, units = plan.hidden / V;
  const u32 rows = row0 + plan.tile_rows < plan.rows ? plan.tile_rows : plan.rows - row0;
  const bool alone = plan.tile_rows == 1;
  const u32 team = alone ? blockDim.x : 32, me = threadIdx.x % team, teams = blockDim.x / team;
  auto load = [&](wide (&x)[V], const char* p) {
    if constexpr (V > 1) Lanes<T>::accumulate(x, ld_weak(p));
    else x[0] = Lanes<T>::get(p);
  };
  __syncthreads();  // the means are there
  for (u32 row = threadIdx.x / team; row < rows; row += teams) {
    const char* from = means + row * units * unit_bytes;
    char* to = out + (u64)(row0 + row) * units * unit_bytes;
    wide square = 0;
    for (u32 unit = me; unit < units; unit += team) {
      wide x[V] = {};
      load(x, from + unit * unit_bytes);
#pragma unroll
      for (int e = 0; e < V; ++e) square += x[e] * x[e];
    }
    for (int lane = 16; lane; lane /= 2) square += __shfl_xor_sync(0xffffffffu, square, lane);
    if (alone) {
      if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = square;
      __syncthreads();
      square = 0;
      for (u32 warp = 0; warp < blockDim.x / 32; ++warp) square += partial[warp];
    }
    const wide factor = root(square / (wide)plan.hidden + (wide)eps);
    for (u32 unit = me; unit < units; unit += team) {
      wide x[V] = {}, gain[V] = {};
      load(x, from + unit * unit_bytes);
      load(gain, gamma + unit * unit_bytes);
#pragma unroll
      for (int e = 0; e < V; ++e) x[e] *= factor * gain[e];
      if constexpr (V > 1) st_leaving(to + 16 * unit, Lanes<T>::pack(x));
      else Lanes<T>::put(to + unit_bytes * unit, x[0]);
    }
  }
}

template <class T, int V>
__device__ __forceinline__ void push_and_norm(const Pipe& pipe, const char* in, const char* gamma, char* out,
                                              double eps, const Plan plan) {
  using wide = wide_t<T>;
  constexpr u32 unit_bytes = V * Lanes<T>::size;
  const u32 rank = pipe.rank, world = pipe.world, epoch = pipe.epoch();
  const u32 units = plan.hidden / V, tiles = (plan.rows + plan.tile_rows - 1) / plan.tile_rows;
  const u64 cell = pipe.slot_bytes / world, block_of_rows = (u64)plan.rows * units * unit_bytes;  // a slot has W cells
  const wide share = (wide)1 / (wide)world;

  extern __shared__ uint4 memory[];
  const char** from = reinterpret_cast<const char**>(memory);  // [k]: what goes to the rank k after this one,
  char** to = reinterpret_cast<char**>(memory) + world;        // and this rank's place in its slots
  wide* partial = reinterpret_cast<wide*>(memory + world);     // one for each warp: at most 32
  char* means = reinterpret_cast<char*>(memory + world + 16);
  for (u32 k = threadIdx.x; k < world; k += blockDim.x) {
    const u32 peer = (rank + k) % world;
    from[k] = in + peer * block_of_rows;
    to[k] = pipe.slots[peer] + rank * cell;
  }
  const char* arrived = pipe.slots[rank];
  __syncthreads();

  auto tile_of = [&](u32 turn) { return blockIdx.x + turn / plan.pieces * gridDim.x; };
  auto begin_of = [&](u32 turn) { return tile_of(turn) * plan.tile_rows * units + turn % plan.pieces * plan.piece; };
  auto count_of = [&](u32 turn) -> u32 {
    const u32 tile = tile_of(turn), begin = begin_of(turn);
    if (tile >= tiles) return 0;
    const u32 last = (tile + 1) * plan.tile_rows, end = (last < plan.rows ? last : plan.rows) * units;
    return end - begin < plan.piece ? end - begin : plan.piece;
  };

  auto produce = [&](u32 turn) {
    const u32 count = count_of(turn);
    const u64 begin = (u64)begin_of(turn) * unit_bytes, slot = pipe.at(epoch, turn);
    if (V > 1 && PREFETCH && threadIdx.x < world && turn + PREFETCH < pipe.turns && count_of(turn + PREFETCH))
      prefetch(from[threadIdx.x] + (u64)begin_of(turn + PREFETCH) * unit_bytes, count_of(turn + PREFETCH) * unit_bytes);
    for (u32 i = threadIdx.x; i < count; i += blockDim.x)
      for (u32 k = 1; k < world; k += FLIGHT) {
        uint4 v[FLIGHT];
#pragma unroll
        for (u32 m = 0; m < FLIGHT; ++m) {
          if (k + m >= world) break;
          if constexpr (V > 1) v[m] = ld_leaving(from[k + m] + begin + 16 * i);
          else Lanes<T>::put(to[k + m] + slot + i * unit_bytes, Lanes<T>::get(from[k + m] + begin + i * unit_bytes));
        }
#pragma unroll
        for (u32 m = 0; m < FLIGHT; ++m) {
          if (V == 1 || k + m >= world) break;
          st_weak(to[k + m] + slot + 16 * i, v[m]);
        }
      }
  };
  auto consume = [&](u32 turn) {
    const u32 count = count_of(turn);
    const char* own = from[0] + (u64)begin_of(turn) * unit_bytes;
    const char* pushed = arrived + pipe.at(epoch, turn);
    char* mean = means + turn % plan.pieces * plan.piece * unit_bytes;
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
      wide sum[V] = {};
      for (u32 k = 0; k < world; k += FLIGHT) {
        uint4 v[FLIGHT];
#pragma unroll
        for (u32 m = 0; m < FLIGHT; ++m) {
          if (k + m >= world) break;
          const char* p = (k + m == rank ? own : pushed + (k + m) * cell) + i * unit_bytes;
          if constexpr (V > 1) v[m] = ld_stream(p);
          else sum[0] += Lanes<T>::get(p);
        }
#pragma unroll
        for (u32 m = 0; m < FLIGHT; ++m) {
          if (V == 1 || k + m >= world) break;
          if constexpr (V > 1) Lanes<T>::accumulate(sum, v[m]);
        }
      }
#pragma unroll
      for (int e = 0; e < V; ++e) sum[e] *= share;
      if constexpr (V > 1) st_weak(mean + 16 * i, Lanes<T>::pack(sum));
      else Lanes<T>::put(mean + i * unit_bytes, sum[0]);
    }
    if (turn % plan.pieces == plan.pieces - 1 && tile_of(turn) < tiles)
      normalise<T, V>(means, partial, plan, tile_of(turn), gamma, out, eps);
  };
  pipeline(pipe, epoch, produce, consume);
}

#define KERNEL(T, V, NAME)                                                                                            \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                       \
      NAME(const __grid_constant__ Pipe pipe, const char* in, const char* gamma, char* out, double eps, u32 rows,     \
           u32 hidden, u32 tile_rows, u32 pieces, u32 piece) {                                                        \
    push_and_norm<T, V>(pipe, in, gamma, out, eps, Plan{rows, hidden, tile_rows, pieces, piece});                     \
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
THREADS = 512
BLOCKS = 2  # on an SM: bounds registers
AHEAD = 0
PREFETCH = 1  # turns ahead that arguments are asked for; 0: not
FLIGHT = 8  # loads of a thread at once
PIECE_BYTES = 8192
MAX_BLOCKS = 264  # two on each of 132 SMs
MODULE = kit.compile(
    SOURCE,
    name="reducescatter_rmsnorm",
    options=[
        f"-DTHREADS={THREADS}",
        f"-DBLOCKS={BLOCKS}",
        f"-DPREFETCH={PREFETCH}",
        f"-DFLIGHT={FLIGHT}",
    ],
)


@cache
def plan(group, rows, hidden, dtype, device):
    """What calls of one shape share: the launch, what it works with, and how rows are cut."""
    world, row_bytes = dist.get_world_size(group), hidden * dtype.itemsize
    vectors = row_bytes % 16 == 0
    unit_bytes = 16 if vectors else dtype.itemsize
    kernel = MODULE.kernel(f"{'vectors' if vectors else 'elements'}_{kit.lanes(dtype)}")

    def shared(tile_rows):
        return 16 * (world + 16) + tile_rows * row_bytes

    slot_bytes = world * (-(-PIECE_BYTES // 16) * 16)
    pipe = kit.pipeline("rmsnorm", blocks=MAX_BLOCKS, slot_bytes=slot_bytes, ahead=AHEAD, device=device)
    resident = pipe.resident_blocks(kernel, THREADS, shared=shared(1))
    tile_rows = max(1, min(PIECE_BYTES // row_bytes, -(-rows // resident)))
    units = tile_rows * row_bytes // unit_bytes
    piece = -(-units // -(-tile_rows * row_bytes // PIECE_BYTES))  # pieces of a tile are alike in size
    pieces, tiles = -(-units // piece), -(-rows // tile_rows)
    resident = pipe.resident_blocks(kernel, THREADS, shared=shared(tile_rows))  # blocks wait: all must run at once
    blocks = min(resident, tiles)
    turns = -(-tiles // blocks) * pieces
    sizes = [kit.u32(n) for n in (rows, hidden, tile_rows, pieces, piece)]
    return kernel[blocks, THREADS, shared(tile_rows)], pipe, turns, sizes


def solution(rs_input_1d: torch.Tensor, gamma: torch.Tensor, eps: float) -> torch.Tensor:
    world, hidden = dist.get_world_size(), gamma.numel()
    if rs_input_1d.numel() % (world * hidden):
        raise ValueError(f"{rs_input_1d.numel()} elements are not rows of {hidden} for {world} ranks")
    rows = rs_input_1d.numel() // (world * hidden)
    x, gain = kit.aligned(rs_input_1d), kit.aligned(gamma.to(rs_input_1d.dtype))
    launch, pipe, turns, sizes = plan(dist.group.WORLD, rows, hidden, x.dtype, x.device)
    out = x.new_empty((rows, hidden))
    launch(pipe(turns), x, gain, out, float(eps), *sizes)
    return out
