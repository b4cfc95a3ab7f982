"""Gather: all push chunks into slots at the root, which copies them into its stacked result, in turns.

With tensors of S bytes every other rank reads S and pushes it; the root fetches (W-1) S from its own memory, copies its
own tensor straight from argument to result, and writes W S. No algorithm brings less to the root. A slot holds 8 KiB of
a block's turn for each rank, so what is pushed is fetched microseconds later and never leaves L2 for memory.

Synchronisation: pkb::pipeline. A block announces each turn to the blocks of the same number (a release at system
scope), and goes on when all have announced it (an acquire). The root produces nothing and announces all the same: that
frees slots. Slots go round, and no barrier is needed at the end: why is said there.

No NVLS: every byte has one receiver.
"""

import torch

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
#include "pkb_collective.cuh"
using namespace pkb;

extern "C" __global__ void __launch_bounds__(256, 4)
    gather(char* const* slots, u32* const* counts, int rank, int world, const char* in, char* out, int root, u64 bytes,
           u32 chunk, u32 slot_bytes, u32 turns, u32 base) {
  const Turns t = turns_of(slots, counts, rank, world, slot_bytes, turns, base);
  auto produce = [&](u32 turn) {
    if (rank == root) return;
    const Part part = t.part(bytes, chunk, turn);
    char* to = t.slots[root] + t.at(turn) + (u64)rank * chunk;
    stage_rows(part.bytes, part.bytes, (u64)in, [&](u32) { return in + part.begin; }, [&](u32) { return to; });
  };
  auto consume = [&](u32 turn) {
    if (rank != root) return;
    const Part part = t.part(bytes, chunk, turn);
    const char* mine = t.slots[rank] + t.at(turn);
    deliver_rows(world * part.bytes, part.bytes, (u64)in | (u64)out | bytes,
                 [&](u32 k) { return k == rank ? in + part.begin : mine + k * chunk; },
                 [&](u32 k) { return out + k * bytes + part.begin; });
  };
  t.run(produce, consume);
}
"""
AHEAD = 1  # turns that blocks produce ahead
THREADS = 256
MAX_BLOCKS = 256
CHUNK_BYTES = 8 * 1024  # of a block's turn and one sender; times ranks, blocks and slots it should fit into L2
LEAST_BYTES = 512  # of a block: a smaller tensor takes fewer
SLOTS = 2 * AHEAD + 2
KERNEL = kit.compile(SOURCE, name="gather", options=[f"-DPKB_AHEAD={AHEAD}"]).kernel("gather")


def solution(tensor: torch.Tensor, dst: int = 0) -> torch.Tensor:
    data, world = tensor.contiguous(), torch.distributed.get_world_size()
    nbytes, slot_bytes = data.numel() * data.element_size(), world * CHUNK_BYTES
    if not 0 <= dst < world:
        raise ValueError(f"dst is {dst}, but there are {world} ranks")
    pipe = kit.pipeline("gather", blocks=MAX_BLOCKS, slot_bytes=MAX_BLOCKS * SLOTS * slot_bytes, device=data.device)
    gathers = pipe.rank == dst
    out = torch.empty((world, *data.shape), dtype=data.dtype, device=data.device) if gathers else tensor
    resident = min(MAX_BLOCKS, KERNEL.resident_blocks(THREADS, shared=8 * world))  # blocks wait: all must run at once
    blocks, turns, chunk = kit.turns(nbytes, blocks=resident, least=LEAST_BYTES, most=CHUNK_BYTES)
    sizes = nbytes, kit.u32(chunk), kit.u32(slot_bytes), kit.u32(turns), pipe.base(turns)
    KERNEL[blocks, THREADS, 8 * world](*pipe.tables, data, out if gathers else None, kit.i32(dst), *sizes)
    return out
