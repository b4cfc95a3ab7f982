"""Gather: all push chunks into slots at the root, which copies them into its stacked result, in turns.

With tensors of S bytes every other rank reads S and pushes it; the root fetches (W-1) S from its own memory, copies its
own tensor straight from argument to result, and writes W S. A slot holds 8 KiB of
a block's turn for each rank, so what is pushed is fetched microseconds later and never leaves L2 for memory.

Synchronisation: pkb::pipeline. A block announces each turn to the blocks of the same number (a release at system
scope), and goes on when all have announced it (an acquire). The root produces nothing and announces all the same: that
frees slots. Slots go round, and no barrier is needed at the end: why is said there.

Links, busiest direction of a GPU: (W-1) S into the root, which no algorithm can go below. Steps: one a turn, hidden
behind other blocks. No NVLS: every byte has one receiver.
"""

import torch

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
#include "pkb_collective.cuh"
using namespace pkb;

extern "C" __global__ void __launch_bounds__(256, 4)
    gather(const __grid_constant__ Pipe pipe, const char* in, char* out, int root, u64 bytes, u32 chunk) {
  const Turns t = turns_of(pipe);
  auto produce = [&](u32 turn) {
    if (t.rank == root) return;
    const Part part = t.part(bytes, chunk, turn);
    char* to = t.slots[root] + t.at(turn) + (u64)t.rank * chunk;
    stage_rows(part.bytes, part.bytes, (u64)in, [&](u32) { return in + part.begin; }, [&](u32) { return to; });
  };
  auto consume = [&](u32 turn) {
    if (t.rank != root) return;
    const Part part = t.part(bytes, chunk, turn);
    const char* mine = t.slots[t.rank] + t.at(turn);
    deliver_rows(t.world * part.bytes, part.bytes, (u64)in | (u64)out | bytes,
                 [&](u32 k) { return k == t.rank ? in + part.begin : mine + k * chunk; },
                 [&](u32 k) { return out + k * bytes + part.begin; });
  };
  t.run(produce, consume);
}
"""
AHEAD = 1  # turns that blocks produce ahead
THREADS = 256
MAX_BLOCKS = 264  # two on each of 132 SMs
CHUNK_BYTES = 8 * 1024  # of a block's turn and one sender; times ranks, blocks and slots it should fit into L2
LEAST_BYTES = 512  # of a block: a smaller tensor takes fewer
KERNEL = kit.compile(SOURCE, name="gather").kernel("gather")


def solution(tensor: torch.Tensor, dst: int = 0) -> torch.Tensor:
    data, world = tensor.contiguous(), torch.distributed.get_world_size()
    nbytes = data.numel() * data.element_size()
    if not 0 <= dst < world:
        raise ValueError(f"dst is {dst}, but there are {world} ranks")
    slot_bytes = world * CHUNK_BYTES
    pipe = kit.pipeline("gather", blocks=MAX_BLOCKS, slot_bytes=slot_bytes, ahead=AHEAD, device=data.device)
    gathers = pipe.rank == dst
    out = torch.empty((world, *data.shape), dtype=data.dtype, device=data.device) if gathers else tensor
    resident = pipe.resident_blocks(KERNEL, THREADS, shared=8 * world)  # blocks wait: all must run at once
    blocks, turns, chunk = kit.turns(nbytes, blocks=resident, least=LEAST_BYTES, most=CHUNK_BYTES)
    target = out if gathers else None
    KERNEL[blocks, THREADS, 8 * world](pipe(turns), data, target, kit.i32(dst), nbytes, kit.u32(chunk))
    return out
