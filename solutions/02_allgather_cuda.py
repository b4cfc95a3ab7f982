"""All-gather: blocks stage chunks of their shard in slots of their own memory, and all fetch them into their results,
in turns.

With a shard of S bytes a rank reads S, stores it in its slots and, from the same registers, in its own slice of the
result; it fetches (W-1) S from peers and writes W S in all. Pulling, because one slot then serves all ranks: the slots
are W times fewer than if everybody pushed, 8 KiB of a block's turn, and stay in L2. A small shard takes one turn: one
phase.

Links, busiest direction of a GPU: (W-1) S, which no algorithm can go below. Steps: one a turn, hidden behind other
blocks. No NVLS: a multicast store comes back to its sender too, so W S would enter every GPU.

Synchronisation: pkb::pipeline. A block announces each turn to the blocks of the same number (a release at system
scope), and fetches a turn when all have announced it (an acquire). Slots go round, and no barrier is needed at the end:
why is said there.
"""

import torch

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
#include "pkb_collective.cuh"
using namespace pkb;

extern "C" __global__ void __launch_bounds__(256, 4)
    all_gather(const __grid_constant__ Pipe pipe, const char* in, char* out, u64 bytes, u32 chunk) {
  const Turns t = turns_of(pipe);
  const u64 misfit = (u64)in | (u64)out | bytes;
  auto produce = [&](u32 turn) {
    const Part part = t.part(bytes, chunk, turn);
    stage_rows(part.bytes, part.bytes, misfit, [&](u32) { return in + part.begin; },
               [&](u32) { return t.slots[t.rank] + t.at(turn); },
               [&](u32) { return out + t.rank * bytes + part.begin; });
  };
  auto consume = [&](u32 turn) {
    const Part part = t.part(bytes, chunk, turn);
    const u64 from = t.at(turn);
    deliver_rows((t.world - 1) * part.bytes, part.bytes, misfit, [&](u32 k) { return t.slots[t.peer(k)] + from; },
                 [&](u32 k) { return out + t.peer(k) * bytes + part.begin; });
  };
  t.run(produce, consume);
}
"""
AHEAD = 0  # turns that blocks produce ahead
THREADS = 256
MAX_BLOCKS = 264  # two on each of 132 SMs
CHUNK_BYTES = 8 * 1024  # of a block's turn; times blocks, slots and ranks it should fit into L2
LEAST_BYTES = 512  # of a block: a smaller tensor takes fewer
KERNEL = kit.compile(SOURCE, name="allgather").kernel("all_gather")


def solution(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.contiguous()
    nbytes = tensor.numel() * tensor.element_size()
    pipe = kit.pipeline("allgather", blocks=MAX_BLOCKS, slot_bytes=CHUNK_BYTES, ahead=AHEAD, device=tensor.device)
    world = pipe.world
    out = torch.empty((world, *tensor.shape), dtype=tensor.dtype, device=tensor.device)
    resident = pipe.resident_blocks(KERNEL, THREADS, shared=8 * world)  # blocks wait: all must run at once
    blocks, turns, chunk = kit.turns(nbytes, blocks=resident, least=LEAST_BYTES, most=CHUNK_BYTES)
    KERNEL[blocks, THREADS, 8 * world](pipe(turns), tensor, out, nbytes, kit.u32(chunk))
    return out
