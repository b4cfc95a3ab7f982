"""Broadcast: the source spreads every chunk over the slots of its peers, and they fetch the pieces from each other, in
turns.

A chunk of a block is cut into W-1 rows, one for each rank but the source, which pushes it there; the peers fetch the
rows of the others. One phase: a peer that has seen the source's announcement may read what the source wrote, in
whosever memory it lies. The source stores its own result from the registers that push: S read, 2 S written; the others
fetch S and write S. Slots hold 32 KiB of a block's turn over all ranks together, so they stay in L2. A small tensor
takes one turn. Where the switch can multicast (NVLS), the source stores to all ranks' slots at once.

Links, busiest direction of a GPU, and dependent steps:

| way | bytes | steps |
|---|---|---|
| spread | S out of the source; the others get S/(W-1) from it and (W-2)/(W-1) S from peers, and give as much | 1 a turn |
| switch | S, out of the source and into every GPU: no fewer, so only if asked for (PKB_NVLS=1) | 1 a turn |

Synchronisation: pkb::pipeline. A block announces each turn to the blocks of the same number (a release at system
scope), and uses a turn when all have announced it (an acquire). The others produce nothing and announce all the same:
that frees slots. Slots go round, and no barrier is needed at the end: why is said there.
"""

import torch

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
#include "pkb_collective.cuh"
using namespace pkb;

extern "C" __global__ void __launch_bounds__(256, 4)
    broadcast(const __grid_constant__ Pipe pipe, const char* in, char* out, int source, u64 bytes, u32 chunk) {
  const Turns t = turns_of(pipe);
  const u64 misfit = (u64)in | (u64)out;
  const u32 owners = t.world > 1 ? t.world - 1 : 1;
  auto owner = [&](u32 k) { return k + (k >= source && t.world > 1); };  // of row k: everybody but the source
  auto row_of = [&](const Part& part) { return ((u32)part.bytes + 16 * owners - 1) / (16 * owners) * 16; };
  auto produce = [&](u32 turn) {
    if (t.rank != source) return;
    const Part part = t.part(bytes, chunk, turn);
    const u32 row = row_of(part);
    const u64 to = t.at(turn);
    stage_rows(part.bytes, row, misfit, [&](u32 k) { return in + part.begin + k * row; },
               [&](u32 k) { return t.slots[owner(k)] + to; }, [&](u32 k) { return out + part.begin + k * row; });
  };
  auto consume = [&](u32 turn) {
    if (t.rank == source) return;
    const Part part = t.part(bytes, chunk, turn);
    const u32 row = row_of(part);
    const u64 from = t.at(turn);
    // Blocks begin with different owners, so that these are loaded alike; in order where the last row is short.
    const u32 first = part.bytes == (u64)owners * row ? block_in_grid() % owners : 0;
    deliver_rows(part.bytes, row, (u64)out, [&](u32 k) { return t.slots[owner(k)] + from; },
                 [&](u32 k) { return out + part.begin + k * row; }, Turned{first, owners});
  };
  t.run(produce, consume);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
extern "C" __global__ void __launch_bounds__(256, 4)
    by_switch(const __grid_constant__ Pipe pipe, const char* in, char* out, int source, u64 bytes, u32 chunk) {
  const Turns t = turns_of(pipe);
  auto produce = [&](u32 turn) {
    const Part part = t.part(bytes, chunk, turn);
    if (t.rank == source) stage_by_switch(pipe.multicast + t.at(turn), in + part.begin, part.bytes);
  };
  auto consume = [&](u32 turn) {
    const Part part = t.part(bytes, chunk, turn);
    const char* from = t.rank == source ? in + part.begin : t.slots[t.rank] + t.at(turn);
    deliver_rows(part.bytes, part.bytes, (u64)out, [&](u32) { return from; }, [&](u32) { return out + part.begin; });
  };
  t.run(produce, consume);
}
#endif
"""
AHEAD = 1  # turns that blocks produce ahead
THREADS = 256
MAX_BLOCKS = 264  # two on each of 132 SMs
CHUNK_BYTES = 32 * 1024  # of a block's turn, over all ranks; times blocks and slots it should fit into L2
LEAST_BYTES = 1024  # of a block: a smaller tensor takes fewer
MODULE = kit.compile(SOURCE, name="broadcast")


def solution(tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
    tensor = tensor.contiguous()
    nbytes = tensor.numel() * tensor.element_size()
    # A slot could be W-1 times smaller where the switch is not used, but what is not used costs nothing.
    pipe = kit.pipeline("broadcast", blocks=MAX_BLOCKS, slot_bytes=CHUNK_BYTES, ahead=AHEAD, device=tensor.device)
    world = pipe.world
    if not 0 <= src < world:
        raise ValueError(f"src is {src}, but there are {world} ranks")
    out = torch.empty_like(tensor)
    by_switch = nbytes % 16 == 0 and kit.nvls(pipe.stage.handle, links=1, switch=1)  # by what all ranks know alike
    if by_switch:
        tensor = kit.aligned(tensor)
    kernel = MODULE.kernel("by_switch" if by_switch else "broadcast")
    resident = pipe.resident_blocks(kernel, THREADS, shared=8 * world)  # blocks wait: all must run at once
    unit = 16 * max(1, world - 1) if nbytes > resident * CHUNK_BYTES else 16  # rows are alike where there are many
    most = CHUNK_BYTES // unit * unit
    blocks, turns, chunk = kit.turns(nbytes, blocks=resident, least=LEAST_BYTES, most=most, unit=unit)
    now = pipe(turns, nvls=by_switch)
    kernel[blocks, THREADS, 8 * world](now, tensor, out, kit.i32(src), nbytes, kit.u32(chunk))
    return out
