"""All-reduce: one-shot for small tensors, two-shot in small turns for large ones. Sums are in float32 (float64 for
float64) and in rank order, so all ranks hold the same bits.

One-shot: everybody stages its tensor of S bytes and adds all W of them. Two-shot: a block cuts its chunk into W rows
and pushes row k to rank k, which adds the W rows it gets and stages the sum; all fetch the sums a turn later. It reads
S from memory and writes S: slots hold 32 KiB of a block's turn, so what passes between ranks is taken up microseconds
later and never leaves L2 for memory. Where the switch can add (NVLS), a rank stages its rows in its own slot, loads the
sum of its row and stores it to all ranks' slots, in place.

Links, busiest direction of a GPU, and dependent steps (a signal and a wait each):

| way | bytes | steps |
|---|---|---|
| one-shot | (W-1) S | 1 |
| two-shot | 2 (W-1)/W S | turns + 1, each hidden behind other blocks |
| switch | (1 + 1/W) S: fewer from 4 ranks on | turns + 1 |

Synchronisation: pkb::pipeline. A block announces each turn to the blocks of the same number (a release at system
scope), and uses what they produced when all have announced it (an acquire). Slots go round, and no barrier is needed at
the end: why is said there, and for the sums at sum_two_shot. These two share the slots, since turns are counted from
call to call.
"""

import torch
import torch.distributed as dist

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
#include "pkb_collective.cuh"
using namespace pkb;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// The turns of sum_two_shot. Only rank k reads row k of the slots before it overwrites it with the sum, and a slot is
// filled anew after this rank has fetched what was there. Peers' rows would come earlier: the slots are not shared with
// the other ways.
template <class T>
__device__ void by_switch(const Turns& t, const char* in, char* out, u64 bytes, u32 row) {
  const u32 later = t.pipe.ahead + 1;
  auto part_of = [&](u32 turn) { return t.part(bytes, (u64)t.world * row, turn); };
  auto produce = [&](u32 turn) {
    const Part part = part_of(turn);
    stage_rows(part.bytes, part.bytes, (u64)in, [&](u32) { return in + part.begin; },
               [&](u32) { return t.slots[t.rank] + t.at(turn); });
  };
  auto consume = [&](u32 turn) {
    const u64 bytes_here = part_of(turn).bytes, begin = (u64)t.rank * row;
    char* place = t.pipe.multicast + t.at(turn) + begin;
    if (begin < bytes_here) sum_by_switch<T, true>(place, place, bytes_here - begin < row ? bytes_here - begin : row);
    if (turn < later) return;
    const Part done = part_of(turn - later);
    deliver_rows(done.bytes, done.bytes, (u64)out, [&](u32) { return t.slots[t.rank] + t.at(turn - later); },
                 [&](u32) { return out + done.begin; });
  };
  t.run(produce, consume);
}
#define SWITCH(T)                                                                                                \
  extern "C" __global__ void __launch_bounds__(256, 4)                                                           \
      switch_##T(const __grid_constant__ Pipe pipe, const char* in, char* out, u64 bytes, u32 row) {             \
    by_switch<T>(turns_of(pipe), in, out, bytes, row);                                                           \
  }
SWITCH(f32)
SWITCH(bf16)
SWITCH(f16)
#endif

#define KERNEL(T)                                                                                                \
  extern "C" __global__ void __launch_bounds__(256, 4)                                                           \
      one_shot_##T(const __grid_constant__ Pipe pipe, const char* in, char* out, u64 bytes, u32 row) {           \
    sum_one_shot<T>(turns_of(pipe), in, out, bytes, pipe.world * row, true);                                     \
  }                                                                                                              \
  extern "C" __global__ void __launch_bounds__(256, 4)                                                           \
      two_shot_##T(const __grid_constant__ Pipe pipe, const char* in, char* out, u64 bytes, u32 row) {           \
    sum_two_shot<T>(turns_of(pipe), in, out, bytes, pipe.world * row);                                           \
  }
KERNEL(f32)
KERNEL(bf16)
KERNEL(f16)
KERNEL(f64)
"""
AHEAD = 0  # turns that blocks produce ahead
THREADS = 256
MAX_BLOCKS = 264  # two on each of 132 SMs
ONE_SHOT_BYTES = 256 * 1024
TURN_BYTES = 32 * 1024  # of a block; times blocks, slots and ranks it should fit into L2
LEAST_BYTES = 1024  # of a block: a smaller tensor takes fewer
MODULE = kit.compile(SOURCE, name="allreduce")


def solution(tensor: torch.Tensor) -> torch.Tensor:
    tensor, world = tensor.contiguous(), dist.get_world_size()
    out = torch.empty_like(tensor)
    nbytes, kind = tensor.numel() * tensor.element_size(), kit.lanes(tensor.dtype)
    most = TURN_BYTES // (16 * world) * 16  # of a row
    slots = {"blocks": MAX_BLOCKS, "slot_bytes": (world + 1) * most, "ahead": AHEAD, "device": tensor.device}
    pipe = kit.pipeline("allreduce", **slots)
    way = "one_shot" if nbytes <= ONE_SHOT_BYTES else "two_shot"
    switchable = way == "two_shot" and nbytes % 16 == 0 and kind != "f64"  # by what all ranks know alike
    if switchable and kit.nvls(pipe.stage.handle, links=2 * (world - 1) / world, switch=1 + 1 / world):
        way, tensor = "switch", kit.aligned(tensor)
        pipe = kit.pipeline("allreduce by switch", **slots)
    kernel = MODULE.kernel(f"{way}_{kind}")
    resident = pipe.resident_blocks(kernel, THREADS, shared=8 * world)  # blocks wait: all must run at once
    blocks, turns, chunk = kit.turns(nbytes, blocks=resident, least=LEAST_BYTES, most=world * most, unit=16 * world)
    turns += 0 if way == "one_shot" else AHEAD + 1  # until the last sums are fetched
    now = pipe(turns, nvls=way == "switch")
    kernel[blocks, THREADS, 8 * world](now, tensor, out, nbytes, kit.u32(chunk // world))
    return out
