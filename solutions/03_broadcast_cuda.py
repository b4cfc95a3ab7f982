"""Broadcast: the source spreads every chunk over the slots of all ranks, and all fetch the W pieces from each other, in
turns.

So the tensor of S bytes leaves the source about twice, (W-1)/W S pushed and as much fetched of its own piece, where it
would leave W-1 times if all fetched everything there; nobody else sends more than S. And it is one phase: a peer that
has seen the source's announcement may read what the source wrote, in whosever memory it lies. The source stores its own
result from the registers that push: S read, 2 S written; the others fetch S and write S. Slots hold 32 KiB of a block's
turn over all ranks together, so they stay in L2. A small tensor takes one turn.

Synchronisation: pkb::pipeline. A block announces each turn to the blocks of the same number (a release at system
scope), and uses a turn when all have announced it (an acquire). The others produce nothing and announce all the same:
that frees slots. Slots go round, and no barrier is needed at the end: why is said there.

Where the switch can multicast (NVLS), the source stores to all ranks' slots at once: S sent. That variant compiles, but
was never run.
"""

import torch

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
#include "pkb_collective.cuh"
using namespace pkb;

extern "C" __global__ void __launch_bounds__(256, 4)
    broadcast(char* const* slots, u32* const* counts, int rank, int world, const char* in, char* out, int source,
              u64 bytes, u32 chunk, u32 slot_bytes, u32 turns, u32 base) {
  const Turns t = turns_of(slots, counts, rank, world, slot_bytes, turns, base);
  const u64 misfit = (u64)in | (u64)out;
  auto row_of = [&](const Part& part) { return ((u32)part.bytes + 16 * world - 1) / (16 * world) * 16; };
  auto produce = [&](u32 turn) {
    if (rank != source) return;
    const Part part = t.part(bytes, chunk, turn);
    const u32 row = row_of(part);
    const u64 to = t.at(turn);
    stage_rows(part.bytes, row, misfit, [&](u32 k) { return in + part.begin + k * row; },
               [&](u32 k) { return t.slots[k] + to; }, [&](u32 k) { return out + part.begin + k * row; });
  };
  auto consume = [&](u32 turn) {
    if (rank == source) return;
    const Part part = t.part(bytes, chunk, turn);
    const u32 row = row_of(part);
    const u64 from = t.at(turn);
    deliver_rows(part.bytes, row, (u64)out, [&](u32 k) { return t.slots[k] + from; },
                 [&](u32 k) { return out + part.begin + k * row; });
  };
  t.run(produce, consume);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
extern "C" __global__ void __launch_bounds__(256, 4)
    by_switch(char* const* slots, u32* const* counts, int rank, int world, char* multicast, const char* in, char* out,
              int source, u64 bytes, u32 chunk, u32 slot_bytes, u32 turns, u32 base) {
  const Turns t = turns_of(slots, counts, rank, world, slot_bytes, turns, base);
  auto produce = [&](u32 turn) {
    const Part part = t.part(bytes, chunk, turn);
    if (rank == source) stage_by_switch(multicast + t.at(turn), in + part.begin, part.bytes);
  };
  auto consume = [&](u32 turn) {
    const Part part = t.part(bytes, chunk, turn);
    const char* from = rank == source ? in + part.begin : t.slots[rank] + t.at(turn);
    deliver_rows(part.bytes, part.bytes, (u64)out, [&](u32) { return from; }, [&](u32) { return out + part.begin; });
  };
  t.run(produce, consume);
}
#endif
"""
AHEAD = 1  # turns that blocks produce ahead
THREADS = 256
MAX_BLOCKS = 256
CHUNK_BYTES = 32 * 1024  # of a block's turn, over all ranks; times blocks and slots it should fit into L2
LEAST_BYTES = 1024  # of a block: a smaller tensor takes fewer
SLOTS = 2 * AHEAD + 2
MODULE = kit.compile(SOURCE, name="broadcast", options=[f"-DPKB_AHEAD={AHEAD}"])


def solution(tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
    tensor = tensor.contiguous()
    nbytes = tensor.numel() * tensor.element_size()
    # A slot could be W times smaller where the switch is not used, but what is not used costs nothing.
    pipe = kit.pipeline(
        "broadcast", blocks=MAX_BLOCKS, slot_bytes=MAX_BLOCKS * SLOTS * CHUNK_BYTES, device=tensor.device
    )
    world, multicast = pipe.world, int(pipe.stage.handle.multicast_ptr)
    if not 0 <= src < world:
        raise ValueError(f"src is {src}, but there are {world} ranks")
    out = torch.empty_like(tensor)
    by_switch = multicast and nbytes % 16 == 0  # by what all ranks know alike
    if by_switch:
        tensor = kit.aligned(tensor)
    kernel = MODULE.kernel("by_switch" if by_switch else "broadcast")
    resident = min(MAX_BLOCKS, kernel.resident_blocks(THREADS, shared=8 * world))  # blocks wait: all must run at once
    blocks, turns, chunk = kit.turns(nbytes, blocks=resident, least=LEAST_BYTES, most=CHUNK_BYTES)
    kernel[blocks, THREADS, 8 * world](
        *pipe.tables, *([kit.ptr(multicast)] if by_switch else []), tensor, out, kit.i32(src), nbytes,
        kit.u32(chunk), kit.u32(CHUNK_BYTES), kit.u32(turns), pipe.base(turns),
    )  # fmt: skip
    return out
