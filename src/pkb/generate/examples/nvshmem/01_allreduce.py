"""All-reduce with NVSHMEM in two shots: each PE adds up one W-th of the elements and hands the sum to all.

The tensor is cut into W pieces, one for each PE, and every piece into parts, one for each block. A block puts its part
of piece k to PE k, with a signal; adds what has arrived for its own part, in float32 (float64 for float64) and in the
order of the ranks; and puts the sum to all PEs, with a second signal. One PE adds each element, so all hold the same
bits. Signals are the numbers of calls and the halves of the heap are used in turn, so that no barrier is needed: who
fills a half again has seen all PEs' signals of the call between.

Bytes on the links: 2 (W-1)/W S out of each GPU for a tensor of S bytes. Dependent steps: two.
"""

import torch

from pkb import kit
from pkb.kit import nvshmem

SOURCE = r"""
#include <nvshmem.h>
#include <nvshmemx.h>
#include "pkb.cuh"
using namespace pkb;

// A wait of NVSHMEM is a volatile load: what was put before the signal is behind a fence of our own.
__device__ void await(uint64_t* signals, int world, u64 call) {
  for (int peer = threadIdx.x; peer < world; peer += blockDim.x)
    nvshmem_signal_wait_until(signals + peer, NVSHMEM_CMP_GE, call);
  if (threadIdx.x < world) __threadfence_system();
  __syncthreads();
}

// rows: [source][piece], what PEs have put here to be added; sums: [owner][piece].
template <class T>
__device__ void sum_all(char* rows, char* sums, uint64_t* signals, const char* in, char* out, u64 bytes, u64 piece,
                        u64 part, u64 call) {
  const int me = nvshmem_my_pe(), world = nvshmem_n_pes();
  uint64_t* rows_there = signals + (u64)blockIdx.x * 2 * world;
  uint64_t* sums_there = rows_there + world;
  const u64 at = blockIdx.x * part, end = min(at + part, piece);
  auto size_of = [&](int owner) {  // of my part of its piece
    const u64 begin = owner * piece + at, stop = min(owner * piece + end, bytes);
    return begin < stop ? stop - begin : 0;
  };
  for (int k = 1; k <= world; ++k) {
    const int owner = (me + k) % world;
    nvshmemx_putmem_signal_block(rows + me * piece + at, in + owner * piece + at, size_of(owner), rows_there + me, call,
                                 NVSHMEM_SIGNAL_SET, owner);
  }
  await(rows_there, world, call);
  char* sum = sums + me * piece + at;
  for (u64 i = 16 * threadIdx.x; i < size_of(me); i += 16 * blockDim.x) {
    wide_t<T> total[Lanes<T>::count] = {};
    for (int source = 0; source < world; ++source) Lanes<T>::accumulate(total, ld_weak(rows + source * piece + at + i));
    *reinterpret_cast<uint4*>(sum + i) = Lanes<T>::pack(total);
  }
  __syncthreads();
  for (int k = 1; k <= world; ++k) {
    const int peer = (me + k) % world;
    if (peer != me) {
      nvshmemx_putmem_signal_block(sum, sum, size_of(me), sums_there + me, call, NVSHMEM_SIGNAL_SET, peer);
    } else if (threadIdx.x == 0) {
      nvshmemx_signal_op(sums_there + me, call, NVSHMEM_SIGNAL_SET, me);
    }
  }
  await(sums_there, world, call);
  for (int owner = 0; owner < world; ++owner)
    copy_block(out + owner * piece + at, sums + owner * piece + at, size_of(owner));
}
#define KERNEL(T)                                                                                                  \
  extern "C" __global__ void sum_##T(char* rows, char* sums, uint64_t* signals, const char* in, char* out, u64 bytes, \
                                     u64 piece, u64 part, u64 call) {                                              \
    sum_all<T>(rows, sums, signals, in, out, bytes, piece, part, call);                                            \
  }
KERNEL(f32)
KERNEL(bf16)
KERNEL(f16)
KERNEL(f64)
"""
THREADS = 256
MAX_BLOCKS = 128
LEAST_BYTES = 2048  # of a block's part of a piece
MODULE = kit.compile(SOURCE, name="allreduce")
calls = 0


def solution(tensor: torch.Tensor) -> torch.Tensor:
    global calls
    tensor, (_, world) = tensor.contiguous(), nvshmem.start()
    size, nbytes = tensor.element_size(), tensor.numel() * tensor.element_size()
    piece = -(-nbytes // (16 * world)) * 16
    heap = nvshmem.symmetric(4 * world * piece // size, tensor.dtype, name="allreduce")
    signals = nvshmem.symmetric(2 * MAX_BLOCKS * world, torch.int64, name="allreduce signals")
    out = torch.empty_like(tensor)
    kernel = MODULE.kernel(f"sum_{kit.lanes(tensor.dtype)}")
    blocks = max(1, min(MAX_BLOCKS, kernel.resident_blocks(THREADS), piece // LEAST_BYTES))
    part = -(-piece // (16 * blocks)) * 16
    calls += 1
    rows = heap[calls % 2 * (heap.numel() // 2) :]
    sums = rows[world * piece // size :]
    kernel[blocks, THREADS](rows, sums, signals, tensor, out, nbytes, piece, part, calls)
    return out
