"""Reduce-scatter: blocks push chunks of their tensor into slots at the chunks' owners, which add them up, in small
turns.

Rank r owns block r of rows, S bytes. It reads W S and pushes (W-1) S; it adds the W-1 rows that came and its own, which
it reads where it is, in float32 and rank order, and writes S. Slots hold 32 KiB of a block's turn, so what is pushed is
added microseconds later and never leaves L2 for memory. A small tensor takes one turn: one phase.

Synchronisation: pkb::pipeline. A block announces each turn to the blocks of the same number (a release at system
scope), and adds a turn up when all have announced it (an acquire). Slots go round, and no barrier is needed at the end:
why is said there.

Links, busiest direction of a GPU: (W-1) S, peers in turn from the neighbour on. Steps: one a turn, hidden behind other
blocks. No NVLS: where the switch adds, it reads the owner's part over its link too, so W S would leave every GPU.
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
      reduce_scatter_##T(const __grid_constant__ Pipe pipe, const char* in, char* out, u64 piece, u32 chunk) {         \
    reduce_scatter<T>(turns_of(pipe), in, out, piece, chunk);                                                          \
  }
KERNEL(f32)
KERNEL(bf16)
KERNEL(f16)
KERNEL(f64)
"""
AHEAD = 0  # turns that blocks produce ahead
THREADS = 256
MAX_BLOCKS = 264  # two on each of 132 SMs
TURN_BYTES = 32 * 1024  # of a block, for all ranks together; times blocks, slots and ranks it should fit into L2
LEAST_BYTES = 512  # of one row: a smaller tensor takes fewer blocks
MODULE = kit.compile(SOURCE, name="reducescatter")


def solution(tensor: torch.Tensor) -> torch.Tensor:
    tensor, world = tensor.contiguous(), dist.get_world_size()
    if tensor.dim() == 0 or tensor.shape[0] % world:
        raise ValueError(f"a tensor {tuple(tensor.shape)} cannot be cut into {world} equal blocks along axis 0")
    out = torch.empty((tensor.shape[0] // world, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
    piece, kind, most = out.numel() * out.element_size(), kit.lanes(tensor.dtype), TURN_BYTES // (16 * world) * 16
    pipe = kit.pipeline("reducescatter", blocks=MAX_BLOCKS, slot_bytes=TURN_BYTES, ahead=AHEAD, device=tensor.device)
    kernel = MODULE.kernel(f"reduce_scatter_{kind}")
    resident = pipe.resident_blocks(kernel, THREADS, shared=8 * world)  # blocks wait: all must run at once
    blocks, turns, chunk = kit.turns(piece, blocks=resident, least=LEAST_BYTES, most=most)
    kernel[blocks, THREADS, 8 * world](pipe(turns), tensor, out, piece, kit.u32(chunk))
    return out
