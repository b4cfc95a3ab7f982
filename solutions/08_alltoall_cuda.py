"""All-to-all: blocks push chunks of all slices into slots at their receivers, which copy them into their results, in
small turns.

With slices of S bytes a rank reads W S, pushes (W-1) S and writes W S; its own slice goes straight from argument to
result. Slots hold 32 KiB of a block's turn, so what is pushed is fetched microseconds later and never leaves L2 for
memory. Pushing, since stores do not wait for an answer; the slots would be as many if receivers pulled. A small tensor
takes one turn: one phase.

Synchronisation: pkb::pipeline. A block announces each turn to the blocks of the same number (a release at system
scope), and fetches a turn when all have announced it (an acquire). Slots go round, and no barrier is needed at the end:
why is said there.

Links, busiest direction of a GPU: (W-1) S, which no algorithm can go below; peers in turn, from the neighbour on. Steps:
one a turn, hidden behind other blocks. No NVLS: every byte has one receiver.
"""

import torch
import torch.distributed as dist

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
#include "pkb_collective.cuh"
using namespace pkb;

extern "C" __global__ void __launch_bounds__(256, 4)
    all_to_all(const __grid_constant__ Pipe pipe, const char* in, char* out, u64 piece, u32 chunk) {
  const Turns t = turns_of(pipe);
  const u64 misfit = (u64)in | (u64)out | piece;
  auto produce = [&](u32 turn) {
    const Part part = t.part(piece, chunk, turn);
    const u64 to = t.at(turn) + (u64)t.rank * chunk;
    stage_rows((t.world - 1) * part.bytes, part.bytes, misfit,
               [&](u32 k) { return in + t.peer(k) * piece + part.begin; },
               [&](u32 k) { return t.slots[t.peer(k)] + to; });
  };
  auto consume = [&](u32 turn) {
    const Part part = t.part(piece, chunk, turn);
    const char* mine = t.slots[t.rank] + t.at(turn);
    const char* own = in + t.rank * piece + part.begin;
    deliver_rows(t.world * part.bytes, part.bytes, misfit,
                 [&](u32 k) { return k == t.rank ? own : mine + k * chunk; },
                 [&](u32 k) { return out + k * piece + part.begin; });
  };
  t.run(produce, consume);
}
"""
AHEAD = 0  # turns that blocks produce ahead
THREADS = 256
MAX_BLOCKS = 264  # two on each of 132 SMs
TURN_BYTES = 32 * 1024  # of a block, for all ranks together; times blocks, slots and ranks it should fit into L2
LEAST_BYTES = 512  # of one row: a smaller tensor takes fewer blocks
KERNEL = kit.compile(SOURCE, name="alltoall").kernel("all_to_all")


def solution(tensor: torch.Tensor) -> torch.Tensor:
    tensor, world = tensor.contiguous(), dist.get_world_size()
    if tensor.dim() == 0 or tensor.shape[0] % world:
        raise ValueError(f"a tensor {tuple(tensor.shape)} cannot be cut into {world} equal slices along axis 0")
    out = torch.empty_like(tensor)
    piece, most = tensor.numel() // world * tensor.element_size(), TURN_BYTES // (16 * world) * 16
    pipe = kit.pipeline("alltoall", blocks=MAX_BLOCKS, slot_bytes=TURN_BYTES, ahead=AHEAD, device=tensor.device)
    resident = pipe.resident_blocks(KERNEL, THREADS, shared=8 * world)  # blocks wait: all must run at once
    blocks, turns, chunk = kit.turns(piece, blocks=resident, least=LEAST_BYTES, most=most)
    KERNEL[blocks, THREADS, 8 * world](pipe(turns), tensor, out, piece, kit.u32(chunk))
    return out
