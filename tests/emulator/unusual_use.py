"""All-gathers that use the kit as its own kernels do not: one pipe from two streams, two pipes in one kernel, and several
meetings and runs of one pipe in a kernel.
"""

import torch

from pkb import kit

USE = "streams"
SOURCE = r"""
#include "pkb_collective.cuh"
using namespace pkb;
__device__ void gather(const Turns& t, const char* in, char* out, u64 bytes, u64 stride, u32 chunk) {
  t.run([&](u32 turn) {
          const Part part = t.part(bytes, chunk, turn);
          copy_block(t.slots[t.rank] + t.at(turn), in + part.begin, part.bytes);
        },
        [&](u32 turn) {
          const Part part = t.part(bytes, chunk, turn);
          for (u32 k = 0; k < t.world; ++k)
            copy_block(out + t.peer(k) * stride + part.begin, t.slots[t.peer(k)] + t.at(turn), part.bytes);
        });
}
extern "C" __global__ void part(const __grid_constant__ Pipe pipe, const char* in, char* out, u64 from, u64 bytes,
                                u64 stride, u32 chunk) {
  gather(turns_of(pipe), in + from, out + from, bytes, stride, chunk);
}
extern "C" __global__ void halves(const __grid_constant__ Pipe pipe, const char* in, char* out, u64 cut, u64 bytes, u32 chunk) {
  meet(pipe);
  meet(pipe);
  const Turns t = turns_of(pipe);
  gather(t, in, out, cut, bytes, chunk);
  gather(t, in + cut, out + cut, bytes - cut, bytes, chunk);
  meet(pipe);
}
extern "C" __global__ void nested(const __grid_constant__ Pipe outer, const __grid_constant__ Pipe inner, const char* in,
                                  char* out, u64 cut, u64 bytes, u32 chunk) {
  const Turns t = turns_of(outer), u = turns_of(inner, outer.world);
  t.run([&](u32 turn) {
          const Part part = t.part(cut, chunk, turn);
          copy_block(t.slots[t.rank] + t.at(turn), in + part.begin, part.bytes);
        },
        [&](u32 turn) {
          if (turn == 0) gather(u, in + cut, out + cut, bytes - cut, bytes, chunk);
          const Part part = t.part(cut, chunk, turn);
          for (u32 k = 0; k < t.world; ++k)
            copy_block(out + t.peer(k) * bytes + part.begin, t.slots[t.peer(k)] + t.at(turn), part.bytes);
        });
}
"""
MODULE = kit.compile(SOURCE, name="unusual")
THREADS, CHUNK_BYTES = 32, 128
STREAMS: list[torch.cuda.Stream] = []


def pipe(name: str, device: torch.device, *, ahead: int) -> kit.Pipeline:
    return kit.pipeline(name, blocks=4, slot_bytes=CHUNK_BYTES, ahead=ahead, device=device)


def solution(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.contiguous()
    nbytes = tensor.numel() * tensor.element_size()
    cut = nbytes // 2 // 16 * 16
    first, second = pipe("first", tensor.device, ahead=1), pipe("second", tensor.device, ahead=0)
    out = tensor.new_empty((first.world, *tensor.shape))
    shared = 16 * first.world
    blocks = first.resident_blocks(MODULE.kernel("part"), THREADS, shared=shared)
    turns = max(1, -(-(nbytes - cut) // (blocks * CHUNK_BYTES)))  # of the longer half
    chunk = kit.u32(CHUNK_BYTES)
    if USE == "streams":
        if not STREAMS:
            STREAMS.extend([torch.cuda.Stream(), torch.cuda.Stream()])
        here = torch.cuda.current_stream()
        for stream, begin, size in zip(STREAMS, (0, cut), (cut, nbytes - cut), strict=True):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):  # no order between the two but the kit's
                part = MODULE.kernel("part")[blocks, THREADS, shared]
                part(first(turns), tensor, out, begin, size, nbytes, chunk)
        for stream in STREAMS[:: 1 - 2 * (first.rank % 2)]:  # whose work runs first, where nothing orders the two
            here.wait_stream(stream)
    elif USE == "pipes":
        MODULE.kernel("nested")[blocks, THREADS, shared](first(turns), second(turns), tensor, out, cut, nbytes, chunk)
    else:
        MODULE.kernel("halves")[blocks, THREADS, shared](first(turns), tensor, out, cut, nbytes, chunk)
    return out
