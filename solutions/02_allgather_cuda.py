"""All-gather: blocks stage chunks of their shard in slots of their own memory, and all fetch them into their results,
in turns.

With a shard of S bytes a rank reads S, stores it in its slots and, from the same registers, in its own slice of the
result; it fetches (W-1) S from peers and writes W S in all. Pulling, because one slot then serves all ranks: the slots
are W times fewer than if everybody pushed, 8 KiB of a block's turn, and stay in L2. A small shard takes one turn: one
phase.

Synchronisation: pkb::pipeline. A block announces each turn to the blocks of the same number (a release at system
scope), and fetches a turn when all have announced it (an acquire). Slots go round, and no barrier is needed at the end:
why is said there.

Where the switch can multicast (NVLS), a rank stores its chunk to all ranks' slots at once: S sent in place of (W-1) S.
That variant compiles, but was never run.
"""

import torch

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
#include "pkb_collective.cuh"
using namespace pkb;

extern "C" __global__ void __launch_bounds__(256, 4)
    all_gather(char* const* slots, u32* const* counts, int rank, int world, const char* in, char* out, u64 bytes,
               u32 chunk, u32 slot_bytes, u32 turns, u32 base) {
  const Turns t = turns_of(slots, counts, rank, world, slot_bytes, turns, base);
  const u64 misfit = (u64)in | (u64)out | bytes;
  auto produce = [&](u32 turn) {
    const Part part = t.part(bytes, chunk, turn);
    stage_rows(part.bytes, part.bytes, misfit, [&](u32) { return in + part.begin; },
               [&](u32) { return t.slots[rank] + t.at(turn); }, [&](u32) { return out + rank * bytes + part.begin; });
  };
  auto consume = [&](u32 turn) {
    const Part part = t.part(bytes, chunk, turn);
    const u64 from = t.at(turn);
    deliver_rows((world - 1) * part.bytes, part.bytes, misfit, [&](u32 k) { return t.slots[t.peer(k)] + from; },
                 [&](u32 k) { return out + t.peer(k) * bytes + part.begin; });
  };
  t.run(produce, consume);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
extern "C" __global__ void __launch_bounds__(256, 4)
    by_switch(char* const* slots, u32* const* counts, int rank, int world, char* multicast, const char* in, char* out,
              u64 bytes, u32 chunk, u32 slot_bytes, u32 turns, u32 base) {
  const Turns t = turns_of(slots, counts, rank, world, slot_bytes, turns, base);
  auto produce = [&](u32 turn) {
    const Part part = t.part(bytes, chunk, turn);
    stage_by_switch(multicast + t.at(turn) + (u64)rank * chunk, in + part.begin, part.bytes);
  };
  auto consume = [&](u32 turn) {
    const Part part = t.part(bytes, chunk, turn);
    const char* mine = t.slots[rank] + t.at(turn);
    deliver_rows(world * part.bytes, part.bytes, (u64)out,
                 [&](u32 k) { return k == rank ? in + part.begin : mine + k * chunk; },
                 [&](u32 k) { return out + k * bytes + part.begin; });
  };
  t.run(produce, consume);
}
#endif
"""
AHEAD = 0  # turns that blocks produce ahead
THREADS = 256
MAX_BLOCKS = 256
CHUNK_BYTES = 8 * 1024  # of a block's turn; times blocks, slots and ranks it should fit into L2
LEAST_BYTES = 512  # of a block: a smaller tensor takes fewer
SLOTS = 2 * AHEAD + 2
MODULE = kit.compile(SOURCE, name="allgather", options=[f"-DPKB_AHEAD={AHEAD}"])


def solution(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.contiguous()
    nbytes = tensor.numel() * tensor.element_size()
    # The slots of a turn, pulled, hold one chunk. By the switch they hold one of every rank: chunks are shorter then.
    pipe = kit.pipeline(
        "allgather", blocks=MAX_BLOCKS, slot_bytes=MAX_BLOCKS * SLOTS * CHUNK_BYTES, device=tensor.device
    )
    world, multicast = pipe.world, int(pipe.stage.handle.multicast_ptr)
    out = torch.empty((world, *tensor.shape), dtype=tensor.dtype, device=tensor.device)
    by_switch = multicast and nbytes % 16 == 0  # by what all ranks know alike
    most = CHUNK_BYTES // (16 * world) * 16 if by_switch else CHUNK_BYTES
    if by_switch:
        tensor = kit.aligned(tensor)
    kernel = MODULE.kernel("by_switch" if by_switch else "all_gather")
    resident = min(MAX_BLOCKS, kernel.resident_blocks(THREADS, shared=8 * world))  # blocks wait: all must run at once
    blocks, turns, chunk = kit.turns(nbytes, blocks=resident, least=LEAST_BYTES, most=most)
    kernel[blocks, THREADS, 8 * world](
        *pipe.tables, *([kit.ptr(multicast)] if by_switch else []), tensor, out, nbytes,
        kit.u32(chunk), kit.u32(CHUNK_BYTES), kit.u32(turns), pipe.base(turns),
    )  # fmt: skip
    return out
