"""Row-parallel linear layer: ranks share out the sum; its owner adds W products in float32, the others copy that.

Products are added in rank order, and all hold the same bits. Links, for a result of C bytes: 2 (W-1)/W C in each
direction of a GPU, in two dependent steps; of the pushed half only the last owner's rows are not hidden by the product.

Small products (bf16, fp16, N and K multiples of 8): one launch. A tile of 128 x 128 holds 128 / W rows of EVERY owner.
A block multiplies it on the tensor cores, pushes to each owner its rows, and tells the blocks of the same number; adds
the W slots of its own rows and tells them again; and pulls the other owners' rows of that tile. All blocks have the
same work in every part, and wait only for the same-index blocks of their peers, which made the same tile.

Others: the library multiplies into stages, and one warp waits until all products are there (`all_multiplied`). Then one launch:
blocks add a chunk of their rank's share, announce it, and pull the same chunk of the others, one chunk behind: what is
pulled was just written and lies in L2. Medium products are multiplied at once, into this rank's stage, and fetched to
be added. Large ones (where a share is a multiple of 16 bytes) are pushed: one owner's rows at a time, neighbours first,
with a slot at the owner as the library's output, so on links the transfer hides under the product.

Why one warp: the library launches clusters of up to eight blocks, which need as many free SMs side by side.
Where ranks share a GPU, grids that wait for a peer's product can leave none, and all stand still. After the meeting
only such grids wait for each other, and these fit anywhere.

No barrier at the end and no second buffer: who has pulled all sums knows that the products were read, and sums are
overwritten only after the next call's meeting, to which every peer comes when its pulls are over.

No NVLS: pushed products are at their owners when the product ends; for the rest a rank receives (W-1)/W C either way.
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
__device__ void fused(const Pipe& pipe, char* const* stages, const char* A, const char* B, char* out, u32 m, u32 n,
                      u32 k) {
  const u32 rank = pipe.rank, world = pipe.world, turns = pipe.turns / 2, epoch = pipe.epoch();  // two for each piece
  extern __shared__ uint4 memory[];
  char* tile = reinterpret_cast<char*>(memory);
  constexpr u32 chunks = Tile::chunks;
  const u32 share = (m + world - 1) / world;  // rows that a rank owns; of these in a tile, also in 16 bytes:
  const u32 part = ROWS / world, strip = part * chunks;
  // Piece p: rows [p / across * part, .. + part) of every owner, a tile's columns. An owner has W products, the sum.
  const u32 across = (n + COLUMNS - 1) / COLUMNS, pieces = (share + part - 1) / part * across;
  auto slot = [&](u32 owner, u32 piece, u32 source) {
    return stages[owner] + ((u64)piece * (world + 1) + source) * strip * 16;
  };
  auto row_of = [&](u32 piece, u32 owner, u32 r) {  // in the matrix, or -1
    const u32 row = piece / across * part + r;
    return owner < world && row < share && owner * share + row < m ? (int)(owner * share + row) : -1;
  };
  auto keep = [&](u32 piece, u32 owner, u32 c, uint4 v) {
    const int row = row_of(piece, owner, c / chunks);
    const u32 column = piece % across * COLUMNS + c % chunks * 8;
    if (row >= 0 && column < n) st_weak(out + ((u64)row * n + column) * 2, v);
  };

  for (u32 turn = 0; turn < turns; ++turn) {
    const u32 piece = turn * gridDim.x + blockIdx.x;
    if (piece < pieces) {
      auto row = [&](u32 r) { return row_of(piece, r / part, r % part); };
      Tile::multiply<T>(tile, A, B, piece % across * COLUMNS, n, k, row);
      const u32 first = (rank + 1) % world * strip;  // the neighbour's rows first
#pragma unroll 2
      for (u32 i = threadIdx.x; i < world * strip; i += blockDim.x) {
        const u32 c = first + i < world * strip ? first + i : first + i - world * strip;
        st_weak(slot(c / strip, piece, rank) + c % strip * 16, Tile::get(tile, c / chunks, c % chunks));
      }
    }
    pipe.announce(epoch + turn + 1);
  }
  for (u32 turn = 0; turn < turns; ++turn) {
    const u32 piece = turn * gridDim.x + blockIdx.x;
    pipe.await_all(epoch + turn + 1);
    if (piece < pieces)
#pragma unroll 1
      for (u32 c = threadIdx.x; c < strip; c += blockDim.x) {
        float sum[8] = {};
        in_flight<8>(0, world, [&](u32 source) { return ld_stream(slot(rank, piece, source) + c * 16); },
                  [&](u32, uint4 v) { Lanes<T>::accumulate(sum, v); });
        const uint4 v = Lanes<T>::pack(sum);
        st_weak(slot(rank, piece, world) + c * 16, v);
        keep(piece, rank, c, v);
      }
    pipe.announce(epoch + turns + turn + 1);
  }
  for (u32 turn = 0; turn < turns; ++turn) {
    const u32 piece = turn * gridDim.x + blockIdx.x;
    pipe.await_all(epoch + turns + turn + 1);
    if (piece < pieces)
#pragma unroll 1
      for (u32 c = threadIdx.x; c < strip; c += blockDim.x) {
        auto owner_of = [&](u32 step) { return rank + step < world ? rank + step : rank + step - world; };
        in_flight<8>(1, world, [&](u32 step) { return ld_stream(slot(owner_of(step), piece, world) + c * 16); },
                  [&](u32 step, uint4 v) { keep(piece, owner_of(step), c, v); });
      }
  }
  pipe.advance(epoch + 2 * turns);
}

// ---- after products of the library: `share` bytes a rank, the last may have less; sums lie behind the products;
// `pushed`: at their owners, else where they were made ----
template <class T>
__device__ void add_and_gather(const Pipe& pipe, char* const* stages, char* out, u64 bytes, u64 share, u64 chunk,
                               bool pushed) {
  const u32 rank = pipe.rank, world = pipe.world;
  // i counts 16 bytes of a share.
  auto total = [&](u32 owner, u64 i) { return stages[owner] + world * share + 16 * i; };
  auto keep = [&](u32 owner, u64 i, uint4 v) {  // shares of the last ranks may reach beyond the result
    if (owner * share + 16 * i + 16 <= bytes) st_stream(out + owner * share + 16 * i, v);
  };
  auto each = [&](u32 turn, auto&& work) {  // of this block's part of a turn
    const u64 first = (blockIdx.x + (u64)turn * gridDim.x) * chunk;
#pragma unroll 1
    for (u64 i = first + threadIdx.x; i < first + chunk && 16 * i < share; i += blockDim.x) work(i);
  };
  auto add = [&](u32 turn) {
    each(turn, [&](u64 i) {
      wide_t<T> sum[Lanes<T>::count] = {};
      auto product = [&](u32 source) {
        return ld_stream((pushed ? stages[rank] + source * share : stages[source] + rank * share) + 16 * i);
      };
      in_flight<8>(0, world, product, [&](u32, uint4 v) { Lanes<T>::accumulate(sum, v); });
      st_stream(total(rank, i), Lanes<T>::pack(sum));
      keep(rank, i, Lanes<T>::pack(sum));
    });
  };
  auto pull = [&](u32 turn) {
    each(turn, [&](u64 i) {
      auto owner_of = [&](u32 step) { return rank + step < world ? rank + step : rank + step - world; };
      in_flight<8>(1, world, [&](u32 step) { return ld_stream(total(owner_of(step), i)); },
                [&](u32 step, uint4 v) { keep(owner_of(step), i, v); });
    });
  };
  pipeline(pipe, pipe.epoch(), add, pull);
  const u64 rest = bytes / 16 * 16, last = rest % share / 16;  // what is less than 16 bytes
  if (last / chunk % gridDim.x == blockIdx.x && rest + threadIdx.x < bytes)
    out[rest + threadIdx.x] = total((u32)(rest / share), last)[threadIdx.x];
}

#define FUSED(T)                                                                                                       \
  extern "C" __global__ void __launch_bounds__(256, BLOCKS)                                                            \
      fused_##T(const __grid_constant__ Pipe pipe, char* const* stages, const char* A, const char* B, char* out,       \
                u32 m, u32 n, u32 k) {                                                                                 \
    fused<T>(pipe, stages, A, B, out, m, n, k);                                                                        \
  }
#define GATHER(T)                                                                                                      \
  extern "C" __global__ void __launch_bounds__(256, 4)                                                                 \
      gather_##T(const __grid_constant__ Pipe pipe, char* const* stages, char* out, u64 bytes, u64 share, u64 chunk,   \
                 int pushed) {                                                                                         \
    add_and_gather<T>(pipe, stages, out, bytes, share, chunk, pushed);                                                 \
  }
// All my products are there: they come before in the stream.
extern "C" __global__ void all_multiplied(const __grid_constant__ Pipe pipe) { meet(pipe); }
FUSED(bf16)
FUSED(f16)
GATHER(f32)
GATHER(bf16)
GATHER(f16)
GATHER(f64)
"""
ROWS = 128  # of a tile
COLUMNS = 128
STAGES = 4  # of its operands in shared memory
BLOCKS = 2  # an SM
MAX_BLOCKS = 528  # four on each of 132 SMs
FUSED_FLOPS = 2**29  # of one rank; above it the library's products win
PUSH_FLOPS = 2**34  # above it W products have enough work each
CHUNK_BYTES = 16 * 1024
THREADS, SHARED = 256, STAGES * (ROWS + COLUMNS) * 64
MODULE = kit.compile(
    SOURCE,
    name="gemm_allreduce",
    options=[f"-DTILE_ROWS={ROWS}", f"-DTILE_COLUMNS={COLUMNS}", f"-DTILE_STAGES={STAGES}", f"-DBLOCKS={BLOCKS}"],
)
STATES = {}


class Fused:
    """What fused calls of one shape share."""

    def __init__(self, rows, columns, inner, dtype, device):
        world = dist.get_world_size()
        kernel = MODULE.kernel(f"fused_{kit.lanes(dtype)}")
        part = ROWS // world
        pieces = -(-rows // world // part) * -(-columns // COLUMNS)
        self.pipe = kit.pipeline("gemm_ar", blocks=MAX_BLOCKS, device=device)
        resident = self.pipe.resident_blocks(kernel, THREADS, shared=SHARED)  # blocks wait: all must run at once
        self.turns = -(-pieces // resident)
        stage = kit.staging(pieces * (world + 1) * part * COLUMNS * 2, device, name="gemm_ar")
        self.launch = kernel[-(-pieces // self.turns), THREADS, SHARED]
        self.stages, self.sizes = kit.buffers(stage.handle), [kit.u32(n) for n in (rows, columns, inner)]

    def __call__(self, A, B, out):
        self.launch(self.pipe(2 * self.turns), self.stages, A, B, out, *self.sizes)


class Library:
    """What calls of one shape share where torch multiplies."""

    def __init__(self, rows, columns, inner, dtype, device):
        world, rank, size = dist.get_world_size(), dist.get_rank(), dtype.itemsize
        own = -(-rows // world)
        pushed = own * columns * size % 16 == 0 and 2 * rows * columns * inner > PUSH_FLOPS
        share = own * columns * size if pushed else -(-rows * columns * size // (16 * world)) * 16
        kernel = MODULE.kernel(f"gather_{kit.lanes(dtype)}")
        self.pipe = kit.pipeline("gemm_ar library", blocks=MAX_BLOCKS, ahead=1, device=device)
        resident, units = self.pipe.resident_blocks(kernel, THREADS), share // 16  # blocks wait: all must run at once
        chunk = min(CHUNK_BYTES // 16, -(-units // (resident * THREADS)) * THREADS)
        blocks = min(resident, -(-units // chunk))
        self.turns = -(-units // (chunk * blocks))
        self.meet, self.launch = MODULE.kernel("all_multiplied")[1, 32], kernel[blocks, THREADS]
        self.sizes = rows * columns * size, share, chunk, kit.i32(pushed)
        stage = kit.staging((world + 1) * share, device, name="gemm_ar library").handle
        self.stages = kit.buffers(stage)
        self.products = [(0, stage.get_buffer(rank, (rows, columns), dtype, 0))]  # first row, where it and the next go
        if pushed:
            owners = [(rank + 1 + step) % world for step in range(world)]
            shapes = [(o, (min(own, rows - o * own), columns)) for o in owners if o * own < rows]
            at = rank * share // size
            self.products = [(o * own, stage.get_buffer(o, shape, dtype, at)) for o, shape in shapes]

    def __call__(self, A, B, out):
        for first, place in self.products:
            torch.matmul(A[first : first + place.shape[0]], B, out=place)
        self.meet(self.pipe(1))
        self.launch(self.pipe(self.turns), self.stages, out, *self.sizes)


def solution(A_local: torch.Tensor, B_local: torch.Tensor) -> torch.Tensor:
    if A_local.shape[1] != B_local.shape[0]:
        raise ValueError(f"inner sizes differ: A_local {tuple(A_local.shape)}, B_local {tuple(B_local.shape)}")
    (rows, inner), columns = A_local.shape, B_local.shape[1]
    if dist.get_world_size() > ROWS:
        raise ValueError(f"at most {ROWS} ranks: a tile has rows of each")
    shape = (rows, columns, inner, A_local.dtype)
    key = dist.group.WORLD, shape
    if key not in STATES:
        small = 2 * rows * columns * inner <= FUSED_FLOPS and A_local.dtype.itemsize == 2
        small = small and columns % 8 == 0 and inner % 8 == 0  # rows of A and B are read in 16 bytes
        STATES[key] = (Fused if small else Library)(*shape, A_local.device)
    out = torch.empty((rows, columns), dtype=A_local.dtype, device=A_local.device)
    STATES[key](kit.aligned(A_local), kit.aligned(B_local), out)
    return out
