"""Row-parallel linear layer with sequence parallelism: who owns rows adds the W products in float32, in rank order.

Links, for a whole product of C bytes: (W-1)/W C in each direction of a GPU, in one dependent step; pushed, all but the
last owner's rows are hidden by the product.

Small products (bf16, fp16, N and K multiples of 8): one launch. A tile of 128 x 128 holds 128 / W rows of EVERY owner.
A block multiplies it on the tensor cores and pushes to each owner its rows, into a slot for the source; the blocks of
the same number meet, and each adds the W slots of its own rows, 16 bytes a thread. So all blocks have the same work in
both parts and wait only for the same-index blocks of their peers, which made the same tile: a pipeline of kit.pipeline,
whose slots are free again without a signal.

Others: the library multiplies into stages, one warp waits until all products are there (`all_multiplied`), and a grid
adds them, 16 bytes of each rank at a time. Its last block waits until all ranks have added: so the next call may write
the stages, also where a CUDA graph replays this one. Medium products are multiplied at once, into this rank's stage,
and fetched to be added. Large ones, and those with a share that is no multiple of 16 bytes, are pushed: one owner's
rows at a time, neighbours first, with a slot at the owner as the library's output, so on links the transfer hides under
the product.

Why one warp: the library launches clusters of up to eight blocks, which need as many free SMs side by side.
Where ranks share a GPU, grids that wait for a peer's product can leave none, and all stand still.

No NVLS: the switch could add, but only after the product is done; pushed products are there by then.
"""

import torch
import torch.distributed as dist

from pkb import kit

SOURCE = r"""
#include "pkb_mma.cuh"
using namespace pkb;
using Tile = MmaTile<TILE_ROWS, TILE_COLUMNS, TILE_STAGES>;
constexpr u32 ROWS = Tile::rows, COLUMNS = Tile::columns;

// ---- one launch ----
template <class T>
__device__ void fused(const Pipe& pipe, const char* A, const char* B, char* out, u32 m, u32 n, u32 k) {
  const u32 rank = pipe.rank, world = pipe.world, epoch = pipe.epoch();
  extern __shared__ uint4 memory[];
  char* tile = reinterpret_cast<char*>(memory);
  constexpr u32 chunks = Tile::chunks;
  const u32 own = m / world, part = ROWS / world, strip = part * chunks;  // rows: a rank's, of these in a tile
  // Piece p: rows [p / across * part, .. + part) of every owner, a tile's columns. An owner has [source][row][column].
  const u32 across = (n + COLUMNS - 1) / COLUMNS, pieces = (own + part - 1) / part * across;
  auto slot = [&](u32 owner, u32 turn) { return pipe.slots[owner] + pipe.at(epoch, turn); };
  auto produce = [&](u32 turn) {
    const u32 piece = turn * gridDim.x + blockIdx.x, row0 = piece / across * part, column0 = piece % across * COLUMNS;
    if (piece >= pieces) return;
    Tile::multiply<T>(tile, A, B, column0, n, k, [&](u32 r) {
      return r < part * world && row0 + r % part < own ? (int)(r / part * own + row0 + r % part) : -1;
    });
    const u32 first = (rank + 1) % world * strip;  // the neighbour's rows first
#pragma unroll 2
    for (u32 i = threadIdx.x; i < world * strip; i += blockDim.x) {
      const u32 c = first + i < world * strip ? first + i : first + i - world * strip;
      st_weak(slot(c / strip, turn) + (rank * strip + c % strip) * 16, Tile::get(tile, c / chunks, c % chunks));
    }
  };
  auto consume = [&](u32 turn) {
    const u32 piece = turn * gridDim.x + blockIdx.x, row0 = piece / across * part, column0 = piece % across * COLUMNS;
    if (piece >= pieces) return;
    const char* mine = slot(rank, turn);
#pragma unroll 1
    for (u32 c = threadIdx.x; c < strip; c += blockDim.x) {
      const u32 row = row0 + c / chunks, column = column0 + c % chunks * 8;
      if (row >= own || column >= n) continue;
      float sum[8] = {};
      in_flight<8>(0, world, [&](u32 source) { return ld_stream(mine + (source * strip + c) * 16); },
                   [&](u32, uint4 v) { Lanes<T>::accumulate(sum, v); });
      st_weak(out + ((u64)row * n + column) * 2, Lanes<T>::pack(sum));
    }
  };
  pipeline(pipe, epoch, produce, consume);
}

// ---- after products of the library: a share of `bytes` a rank, `stride` apart; `pushed`: at their owners, else where
// they were made. Ends when all ranks have added ----
template <class T>
__device__ void sum_products(const Peers& p, char* out, u64 bytes, u64 stride, bool pushed) {
  const u32 rank = p.rank, world = p.world;
#pragma unroll 1
  for (u64 at = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 16; at < bytes; at += (u64)gridDim.x * blockDim.x * 16) {
    wide_t<T> sum[Lanes<T>::count] = {};
    auto product = [&](u32 source) {
      return ld_stream((pushed ? p.stages[rank] + source * stride : p.stages[source] + rank * stride) + p.head + at);
    };
    in_flight<8>(0, world, product, [&](u32, uint4 v) { Lanes<T>::accumulate(sum, v); });
    if (at + 16 <= bytes) {
      st_stream(out + at, Lanes<T>::pack(sum));
    } else {
#pragma unroll
      for (u32 lane = 0; lane < Lanes<T>::count; ++lane)
        if (at + lane * Lanes<T>::size < bytes) Lanes<T>::put(out + at + lane * Lanes<T>::size, sum[lane]);
    }
  }
  finish_grid(p, 1);
}

#define FUSED(T)                                                                                                       \
  extern "C" __global__ void __launch_bounds__(256, BLOCKS)                                                            \
      fused_##T(const __grid_constant__ Pipe pipe, const char* A, const char* B, char* out, u32 m, u32 n, u32 k) {     \
    fused<T>(pipe, A, B, out, m, n, k);                                                                                \
  }
#define SUM(T)                                                                                                         \
  extern "C" __global__ void __launch_bounds__(256, 4)                                                                 \
      sum_##T(const __grid_constant__ Peers p, char* out, u64 bytes, u64 stride, int pushed) {                         \
    sum_products<T>(p, out, bytes, stride, pushed);                                                                    \
  }
// All my products are there: they come before in the stream.
extern "C" __global__ void all_multiplied(const __grid_constant__ Peers p) { finish_grid(p, 0); }
FUSED(bf16)
FUSED(f16)
SUM(f32)
SUM(bf16)
SUM(f16)
SUM(f64)
"""
ROWS = 128  # of a tile
COLUMNS = 128
STAGES = 4  # of its operands in shared memory
BLOCKS = 2  # an SM
MAX_BLOCKS = 264  # two on each of 132 SMs
AHEAD = 1  # tiles that blocks multiply ahead
FUSED_FLOPS = 2**31  # of one rank; above it the library's products win
PUSH_FLOPS = 2**34  # above it W products have enough work each
THREADS, SHARED = 256, STAGES * (ROWS + COLUMNS) * 64
MODULE = kit.compile(
    SOURCE,
    name="gemm_reducescatter",
    options=[f"-DTILE_ROWS={ROWS}", f"-DTILE_COLUMNS={COLUMNS}", f"-DTILE_STAGES={STAGES}", f"-DBLOCKS={BLOCKS}"],
)
STATES = {}


class Fused:
    """What fused calls of one shape share."""

    def __init__(self, rows, columns, inner, dtype, device):
        world = dist.get_world_size()
        kernel = MODULE.kernel(f"fused_{kit.lanes(dtype)}")
        pieces = -(-rows // world // (ROWS // world)) * -(-columns // COLUMNS)
        self.pipe = kit.pipeline(
            "gemm_rs", blocks=MAX_BLOCKS, slot_bytes=ROWS * COLUMNS * 2, ahead=AHEAD, device=device
        )
        resident = self.pipe.resident_blocks(kernel, THREADS, shared=SHARED)  # blocks wait: all must run at once
        self.turns = -(-pieces // resident)
        self.launch = kernel[-(-pieces // self.turns), THREADS, SHARED]
        self.sizes = [kit.u32(n) for n in (rows, columns, inner)]

    def __call__(self, A, B, out):
        self.launch(self.pipe(self.turns), A, B, out, *self.sizes)


class Library:
    """What calls of one shape share where torch multiplies."""

    def __init__(self, rows, columns, inner, dtype, device):
        world, rank, size = dist.get_world_size(), dist.get_rank(), dtype.itemsize
        share = rows // world
        self.bytes = share * columns * size
        self.stride = -(-self.bytes // 16) * 16
        self.pushed = self.bytes % 16 != 0 or 2 * rows * columns * inner > PUSH_FLOPS
        kernel = MODULE.kernel(f"sum_{kit.lanes(dtype)}")
        blocks = min(kernel.resident_blocks(THREADS), -(-self.stride // (16 * THREADS)))
        self.now = kit.exchange("gemm_rs", region_bytes=world * self.stride, regions=1, device=device)
        self.meet, self.launch = MODULE.kernel("all_multiplied")[1, 32], kernel[blocks, THREADS]

        def place(owner, shape, at):
            return self.now.handle.get_buffer(owner, shape, dtype, (self.now.region + at) // size)

        owners = [(rank + 1 + step) % world for step in range(world)]
        slots = [(o * share, place(o, (share, columns), rank * self.stride)) for o in owners]
        # The first row of a product, and where it and the next go.
        self.products = slots if self.pushed else [(0, place(rank, (rows, columns), 0))]

    def __call__(self, A, B, out):
        for first, place in self.products:
            torch.matmul(A[first : first + place.shape[0]], B, out=place)
        self.meet(self.now.peers)
        self.launch(self.now.peers, out, self.bytes, self.stride, kit.i32(self.pushed))


def solution(A_local: torch.Tensor, B_local: torch.Tensor) -> torch.Tensor:
    if A_local.shape[1] != B_local.shape[0]:
        raise ValueError(f"inner sizes differ: A_local {tuple(A_local.shape)}, B_local {tuple(B_local.shape)}")
    (rows, inner), columns, world = A_local.shape, B_local.shape[1], dist.get_world_size()
    if rows % world:
        raise ValueError(f"{rows} rows are not divisible by {world}")
    if world > ROWS:
        raise ValueError(f"at most {ROWS} ranks: a tile has rows of each")
    shape = (rows, columns, inner, A_local.dtype)
    key = dist.group.WORLD, shape
    if key not in STATES:
        small = 2 * rows * columns * inner <= FUSED_FLOPS and A_local.dtype.itemsize == 2
        small = small and columns % 8 == 0 and inner % 8 == 0  # rows of A and B are read in 16 bytes
        STATES[key] = (Fused if small else Library)(*shape, A_local.device)
    out = torch.empty((rows // world, columns), dtype=A_local.dtype, device=A_local.device)
    STATES[key](kit.aligned(A_local), kit.aligned(B_local), out)
    return out
