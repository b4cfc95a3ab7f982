"""Scatter: the source pushes chunks of every piece into slots at their receivers, which copy them into their results,
in turns.

With pieces of S bytes the source reads W S, pushes (W-1) S and writes its own piece straight from its argument; the
others fetch S and write S. A slot holds 8 KiB of a block's turn, so what is
pushed is fetched microseconds later and never leaves L2 for memory. Everything is cut by the piece, the one size that
all ranks know.

Synchronisation: pkb::pipeline. A block announces each turn to the blocks of the same number (a release at system
scope), and fetches a turn when all have announced it (an acquire). Receivers produce nothing and announce all the same:
that frees slots. Slots go round, and no barrier is needed at the end: why is said there.

Links, busiest direction of a GPU: (W-1) S out of the source, which no algorithm can go below; receivers in turn, from
the source's neighbour on. Steps: one a turn, hidden behind other blocks. No NVLS: every byte has one receiver.
"""

import torch
import torch.distributed as dist

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
#include "pkb_collective.cuh"
using namespace pkb;

extern "C" __global__ void __launch_bounds__(256, 4)
    scatter(const __grid_constant__ Pipe pipe, const char* in, char* out, int source, u64 piece, u32 chunk) {
  const Turns t = turns_of(pipe);
  const u64 misfit = (u64)in | (u64)out | piece;
  auto produce = [&](u32 turn) {
    if (t.rank != source) return;
    const Part part = t.part(piece, chunk, turn);
    const u64 to = t.at(turn);
    stage_rows((t.world - 1) * part.bytes, part.bytes, misfit, [&](u32 k) { return in + t.peer(k) * piece + part.begin; },
               [&](u32 k) { return t.slots[t.peer(k)] + to; });
  };
  auto consume = [&](u32 turn) {
    const Part part = t.part(piece, chunk, turn);
    const char* from = t.rank == source ? in + t.rank * piece + part.begin : t.slots[t.rank] + t.at(turn);
    deliver_rows(part.bytes, part.bytes, t.rank == source ? misfit : (u64)out, [&](u32) { return from; },
                 [&](u32) { return out + part.begin; });
  };
  t.run(produce, consume);
}
"""
AHEAD = 1  # turns that blocks produce ahead
THREADS = 256
MAX_BLOCKS = 264  # two on each of 132 SMs
CHUNK_BYTES = 8 * 1024  # of a block's turn and one receiver; times blocks, slots and ranks it should fit into L2
LEAST_BYTES = 512  # of a block: a smaller piece takes fewer
KERNEL = kit.compile(SOURCE, name="scatter").kernel("scatter")


def solution(tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
    tensor, world = tensor.contiguous(), dist.get_world_size()
    if not 0 <= src < world:
        raise ValueError(f"src is {src}, but there are {world} ranks")
    shape = tensor.shape
    if dist.get_rank() == src:
        if tensor.dim() == 0 or shape[0] == 0 or shape[0] % world:
            raise ValueError(f"a tensor {tuple(shape)} cannot be cut into {world} equal pieces along axis 0")
        shape = shape[1:] if shape[0] == world else (shape[0] // world, *shape[1:])
    out = torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
    piece = out.numel() * out.element_size()
    pipe = kit.pipeline("scatter", blocks=MAX_BLOCKS, slot_bytes=CHUNK_BYTES, ahead=AHEAD, device=tensor.device)
    resident = pipe.resident_blocks(KERNEL, THREADS, shared=8 * world)  # blocks wait: all must run at once
    blocks, turns, chunk = kit.turns(piece, blocks=resident, least=LEAST_BYTES, most=CHUNK_BYTES)
    KERNEL[blocks, THREADS, 8 * world](pipe(turns), tensor, out, kit.i32(src), piece, kit.u32(chunk))
    return out
