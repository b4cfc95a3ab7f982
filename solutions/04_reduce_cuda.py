"""Reduce: one-shot for small tensors, two-shot in small turns for large ones; ranks that get no sum return a copy of
their own. Sums are in float32 (float64 for float64) and in rank order.

One-shot: everybody stages its tensor of S bytes and the root adds all W of them. Two-shot: a block cuts its chunk into
W-1 rows, one for each rank but the root (with two ranks, for both), which adds the W rows it gets and stages the sum;
the root fetches the sums a turn later. Everybody reads S from memory and writes S; the copy of the own tensor is stored
from the registers that push it. Slots hold 32 KiB of a block's turn, so what passes between ranks is taken up
microseconds later and never leaves L2 for memory. Where the switch can add (NVLS), everybody stages in its own slot
and the root loads the sum.

Links, busiest direction of a GPU, and dependent steps:

| way | bytes | steps |
|---|---|---|
| one-shot | (W-1) S into the root | 1 |
| two-shot | S, in and out of every GPU; for more than two ranks no sum enters the root twice | turns + 1 |
| switch | S, into the root and out of every GPU: no fewer, so only if asked for (PKB_NVLS=1) | 1 a turn |

Synchronisation: pkb::pipeline. A block announces each turn to the blocks of the same number (a release at system
scope), and uses what they produced when all have announced it (an acquire). Slots go round, and no barrier is needed at
the end: why is said there, and for the sums at sum_two_shot. All ways share the slots, since turns are counted from
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
template <class T>
__device__ void by_switch(const Turns& t, const char* in, char* out, u64 bytes, u32 chunk, bool root) {
  auto produce = [&](u32 turn) {
    const Part part = t.part(bytes, chunk, turn);
    stage_rows(part.bytes, part.bytes, (u64)in | (u64)out, [&](u32) { return in + part.begin; },
               [&](u32) { return t.slots[t.rank] + t.at(turn); },
               [&](u32) { return root ? nullptr : out + part.begin; });
  };
  auto consume = [&](u32 turn) {
    const Part part = t.part(bytes, chunk, turn);
    if (root) sum_by_switch<T>(out + part.begin, t.pipe.multicast + t.at(turn), part.bytes);
  };
  t.run(produce, consume);
}
#define SWITCH(T)                                                                                                \
  extern "C" __global__ void __launch_bounds__(256, 4)                                                           \
      switch_##T(const __grid_constant__ Pipe pipe, const char* in, char* out, int root, u64 bytes, u32 chunk) { \
    by_switch<T>(turns_of(pipe), in, out, bytes, chunk, pipe.rank == root);                                      \
  }
SWITCH(f32)
SWITCH(bf16)
SWITCH(f16)
#endif

#define KERNEL(T)                                                                                                \
  extern "C" __global__ void __launch_bounds__(256, 4)                                                           \
      one_shot_##T(const __grid_constant__ Pipe pipe, const char* in, char* out, int root, u64 bytes,            \
                   u32 chunk) {                                                                                  \
    sum_one_shot<T>(turns_of(pipe), in, out, bytes, chunk, pipe.rank == root);                                   \
  }                                                                                                              \
  extern "C" __global__ void __launch_bounds__(256, 4)                                                           \
      two_shot_##T(const __grid_constant__ Pipe pipe, const char* in, char* out, int root, u64 bytes,            \
                   u32 chunk) {                                                                                  \
    sum_two_shot<T>(turns_of(pipe), in, out, bytes, chunk, root);                                                \
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
MODULE = kit.compile(SOURCE, name="reduce")


def solution(tensor: torch.Tensor, dst: int = 0) -> torch.Tensor:
    tensor, world = tensor.contiguous(), dist.get_world_size()
    if not 0 <= dst < world:
        raise ValueError(f"dst is {dst}, but there are {world} ranks")
    out = torch.empty_like(tensor)
    nbytes, kind = tensor.numel() * tensor.element_size(), kit.lanes(tensor.dtype)
    owners = world if world < 3 else world - 1  # of rows, as in the kernel
    most = TURN_BYTES // (16 * world) * 16  # of a row
    slots = {"blocks": MAX_BLOCKS, "slot_bytes": (world + 1) * most, "ahead": AHEAD, "device": tensor.device}
    pipe = kit.pipeline("reduce", **slots)
    way = "one_shot" if nbytes <= ONE_SHOT_BYTES else "two_shot"
    switchable = way == "two_shot" and nbytes % 16 == 0 and kind != "f64"  # by what all ranks know alike
    if switchable and kit.nvls(pipe.stage.handle, links=1, switch=1):
        way, tensor = "switch", kit.aligned(tensor)
    kernel = MODULE.kernel(f"{way}_{kind}")
    resident = pipe.resident_blocks(kernel, THREADS, shared=8 * world)  # blocks wait: all must run at once
    most *= owners
    unit = 16 * owners if nbytes > resident * most else 16  # rows are alike where there are many
    blocks, turns, chunk = kit.turns(nbytes, blocks=resident, least=LEAST_BYTES, most=most, unit=unit)
    turns += AHEAD + 1 if way == "two_shot" else 0  # until the last sums are fetched
    now = pipe(turns, nvls=way == "switch")
    kernel[blocks, THREADS, 8 * world](now, tensor, out, kit.i32(dst), nbytes, kit.u32(chunk))
    return out
