"""Reduce-scatter: blocks push chunks of their tensor into slots at the chunks' owners, which add them up, in small
turns.

Rank r owns block r of rows, S bytes. It reads W S and pushes (W-1) S; it adds the W-1 rows that came and its own, which
it reads where it is, in float32 and rank order, and writes S. Slots hold 32 KiB of a block's turn, so what is pushed is
added microseconds later and never leaves L2 for memory. A small tensor takes one turn: one phase.

Synchronisation: pkb::pipeline. A block announces each turn to the blocks of the same number (a release at system
scope), and adds a turn up when all have announced it (an acquire). Slots go round, and no barrier is needed at the end:
why is said there.

Where the switch can add (NVLS), a rank stages its chunks in its own slots and each owner loads the sum: it receives S
in place of (W-1) S. That variant compiles, but was never run.
"""

import torch
import torch.distributed as dist

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
#include "pkb_collective.cuh"
using namespace pkb;

template <class T>
__device__ void reduce_scatter(const Turns& t, const char* in, char* out, u64 piece, u32 chunk) {
  const u64 misfit = (u64)in | piece;
  const bool direct = misfit % 16 == 0;  // else the own row goes through a slot too, where it is aligned
  auto produce = [&](u32 turn) {
    const Part part = t.part(piece, chunk, turn);
    const u64 to = t.at(turn) + (u64)t.rank * chunk;
    stage_rows((t.world - direct) * part.bytes, part.bytes, misfit,
               [&](u32 k) { return in + t.peer(k) * piece + part.begin; },
               [&](u32 k) { return t.slots[t.peer(k)] + to; });
  };
  auto consume = [&](u32 turn) {
    const Part part = t.part(piece, chunk, turn);
    const char* mine = t.slots[t.rank] + t.at(turn);
    const char* own = direct ? in + t.rank * piece + part.begin : mine + t.rank * chunk;
    sum_rows<T>(out + part.begin, t.world, part.bytes, [&](u32 k) { return k == t.rank ? own : mine + k * chunk; });
  };
  t.run(produce, consume);
}

#define KERNEL(T)                                                                                                      \
  extern "C" __global__ void __launch_bounds__(256, 4)                                                                 \
      reduce_scatter_##T(char* const* slots, u32* const* counts, int rank, int world, const char* in, char* out,       \
                         u64 piece, u32 chunk, u32 slot_bytes, u32 turns, u32 base) {                                  \
    reduce_scatter<T>(turns_of(slots, counts, rank, world, slot_bytes, turns, base), in, out, piece, chunk);           \
  }
KERNEL(f32)
KERNEL(bf16)
KERNEL(f16)
KERNEL(f64)

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
template <class T>
__device__ void by_switch(const Turns& t, char* multicast, const char* in, char* out, u64 piece, u32 chunk) {
  auto produce = [&](u32 turn) {
    const Part part = t.part(piece, chunk, turn);
    char* mine = t.slots[t.rank] + t.at(turn);
    stage_rows(t.world * part.bytes, part.bytes, (u64)in, [&](u32 k) { return in + k * piece + part.begin; },
               [&](u32 k) { return mine + k * chunk; });
  };
  auto consume = [&](u32 turn) {
    const Part part = t.part(piece, chunk, turn);
    sum_by_switch<T>(out + part.begin, multicast + t.at(turn) + t.rank * chunk, part.bytes);
  };
  t.run(produce, consume);
}
#define SWITCH(T)                                                                                                      \
  extern "C" __global__ void __launch_bounds__(256, 4)                                                                 \
      switch_##T(char* const* slots, u32* const* counts, int rank, int world, char* multicast, const char* in,         \
                 char* out, u64 piece, u32 chunk, u32 slot_bytes, u32 turns, u32 base) {                               \
    by_switch<T>(turns_of(slots, counts, rank, world, slot_bytes, turns, base), multicast, in, out, piece, chunk);     \
  }
SWITCH(f32)
SWITCH(bf16)
SWITCH(f16)
#endif
"""
AHEAD = 0  # turns that blocks produce ahead
THREADS = 256
MAX_BLOCKS = 256
TURN_BYTES = 32 * 1024  # of a block, for all ranks together; times blocks, slots and ranks it should fit into L2
LEAST_BYTES = 512  # of one row: a smaller tensor takes fewer blocks
SLOTS = 2 * AHEAD + 2
MODULE = kit.compile(SOURCE, name="reducescatter", options=[f"-DPKB_AHEAD={AHEAD}"])


def solution(tensor: torch.Tensor) -> torch.Tensor:
    tensor, world = tensor.contiguous(), dist.get_world_size()
    if tensor.dim() == 0 or tensor.shape[0] % world:
        raise ValueError(f"a tensor {tuple(tensor.shape)} cannot be cut into {world} equal blocks along axis 0")
    out = torch.empty((tensor.shape[0] // world, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
    piece, kind, most = out.numel() * out.element_size(), kit.lanes(tensor.dtype), TURN_BYTES // (16 * world) * 16
    slot_bytes = MAX_BLOCKS * SLOTS * TURN_BYTES
    pipe = kit.pipeline("reducescatter", blocks=MAX_BLOCKS, slot_bytes=slot_bytes, device=tensor.device)
    multicast = int(pipe.stage.handle.multicast_ptr)
    by_switch = multicast and piece % 16 == 0 and kind != "f64"  # by what all ranks know alike
    kernel = MODULE.kernel(f"{'switch' if by_switch else 'reduce_scatter'}_{kind}")
    resident = min(MAX_BLOCKS, kernel.resident_blocks(THREADS, shared=8 * world))  # blocks wait: all must run at once
    blocks, turns, chunk = kit.turns(piece, blocks=resident, least=LEAST_BYTES, most=most)
    if by_switch:
        tensor = kit.aligned(tensor)
    kernel[blocks, THREADS, 8 * world](
        *pipe.tables, *([kit.ptr(multicast)] if by_switch else []), tensor, out, piece,
        kit.u32(chunk), kit.u32(TURN_BYTES), kit.u32(turns), pipe.base(turns),
    )  # fmt: skip
    return out
