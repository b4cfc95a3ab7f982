"""All-to-all of uneven pieces with NVSHMEM: small slots that are filled and emptied in rounds.

Where a piece begins at its receiver depends on what the others send there, which the sender does not know; so it puts
chunks into a slot that the receiver has for it, and the receiver, which knows its own lists, copies them to their place.
Slots have one size whatever is sent, so no rank need know how much the others have.

Blocks come in pairs: block (peer, b) of a PE sends share b of the piece for `peer` and receives share b of the piece
from it. Both know how many rounds that takes, and launch no blocks that would have none. Round n of a pair, counted over
all calls, goes into slot n mod SLOTS; the sender waits until the receiver has emptied it, n - SLOTS rounds ago. A pair
sends and receives in turn, so that two blocks that wait for each other always have an empty slot to fill.

Bytes on the links: what the lists say. Dependent steps: one for each round, of which SLOTS are on their way at a time.
"""

import ctypes
import math

import torch
import torch.distributed as dist

from pkb import kit
from pkb.kit import nvshmem

SOURCE = r"""
#include <nvshmem.h>
#include <nvshmemx.h>
#include "pkb.cuh"
using namespace pkb;
constexpr u32 MOST_PES = 64, SLOTS = 2;

// A wait of NVSHMEM is a volatile load: what was put before the signal is behind a fence of our own.
__device__ void await(uint64_t* signal, u64 value) {
  nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, value);
  __threadfence_system();
}

struct Pieces {  // where they begin, in bytes: piece k ends where piece k + 1 begins
  u64 send[MOST_PES + 1], receive[MOST_PES + 1];
};

extern "C" __global__ void exchange(const __grid_constant__ Pieces pieces, char* heap, uint64_t* signals, u64* rounds,
                                    const char* in, char* out, u32 shares, u32 launched, u64 chunk, u64 least) {
  const int me = nvshmem_my_pe(), peer = (me + blockIdx.x / launched) % nvshmem_n_pes();
  const u32 share = blockIdx.x % launched;
  auto part = [&](const u64* begin, u64& at, u64& end) {  // my share of a piece
    const u64 size = max(((begin[peer + 1] - begin[peer]) / shares / 16 + 1) * 16, least);
    at = min(begin[peer] + share * size, begin[peer + 1]), end = min(at + size, begin[peer + 1]);
  };
  u64 from, from_end, to, to_end;
  part(pieces.send, from, from_end);
  part(pieces.receive, to, to_end);
  const u64 here = (u64)peer * shares + share, there = (u64)me * shares + share;  // a pair's place in the two heaps
  uint64_t *full = signals, *empty = signals + (u64)nvshmem_n_pes() * shares;
  u64 sent = rounds[2 * here], taken = rounds[2 * here + 1];
  __syncthreads();  // all have read what is written at the end
  while (from < from_end || to < to_end) {
    if (from < from_end) {
      const u64 size = min(chunk, from_end - from);
      if (threadIdx.x == 0 && sent >= SLOTS) await(empty + here, sent - SLOTS + 1);
      __syncthreads();
      nvshmemx_putmem_signal_block(heap + (there * SLOTS + sent % SLOTS) * chunk, in + from, size, full + there, sent + 1,
                                   NVSHMEM_SIGNAL_SET, peer);
      from += size, ++sent;
    }
    if (to < to_end) {
      const u64 size = min(chunk, to_end - to);
      if (threadIdx.x == 0) await(full + here, taken + 1);
      __syncthreads();
      copy_block(out + to, heap + (here * SLOTS + taken % SLOTS) * chunk, size);
      __syncthreads();
      to += size, ++taken;
      if (threadIdx.x == 0) nvshmem_fence(), nvshmemx_signal_op(empty + there, taken, NVSHMEM_SIGNAL_SET, peer);
    }
  }
  if (threadIdx.x == 0) rounds[2 * here] = sent, rounds[2 * here + 1] = taken;
}
"""
MOST_PES, SLOTS = 64, 2
THREADS = 256
CHUNK_BYTES = 32 * 1024
LEAST_BYTES = 4096  # of a share
MOST_BLOCKS = 128
KERNEL = kit.compile(SOURCE, name="alltoallv").kernel("exchange")
ROUNDS = {}


class Pieces(ctypes.Structure):
    _fields_ = (("send", ctypes.c_uint64 * (MOST_PES + 1)), ("receive", ctypes.c_uint64 * (MOST_PES + 1)))


def begins(rows, row_bytes):
    """Where pieces begin, and where the last one ends."""
    sums = [0]
    for count in rows:
        sums.append(sums[-1] + count * row_bytes)
    return sums


def solution(local_tensor, input_split_sizes=None, output_split_sizes=None, group=None):
    _, world = nvshmem.start()
    if dist.get_world_size(group) != world:
        raise ValueError("PEs are all ranks; a part of them cannot exchange alone")
    tensor = local_tensor.contiguous()
    equal = [tensor.shape[0] // world] * world
    send = equal if input_split_sizes is None else [int(rows) for rows in input_split_sizes]
    receive = equal if output_split_sizes is None else [int(rows) for rows in output_split_sizes]
    if sum(send) != tensor.shape[0]:
        raise ValueError(f"input splits {send} do not add up to the {tensor.shape[0]} rows of local_tensor")
    row_bytes = math.prod(tensor.shape[1:]) * tensor.element_size()
    out = torch.empty((sum(receive), *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
    # The same on all ranks, whatever their lists: a pair of blocks must agree on its share.
    shares = max(1, min(MOST_BLOCKS, KERNEL.resident_blocks(THREADS)) // world)
    heap = nvshmem.symmetric(world * shares * SLOTS * CHUNK_BYTES, name="alltoallv")
    signals = nvshmem.symmetric(2 * world * shares, torch.int64, name="alltoallv signals")
    if shares not in ROUNDS:
        ROUNDS[shares] = torch.zeros(2 * world * shares, dtype=torch.int64, device=tensor.device)
    pieces = Pieces()
    pieces.send[: world + 1] = begins(send, row_bytes)
    pieces.receive[: world + 1] = begins(receive, row_bytes)
    most = max(*send, *receive) * row_bytes  # of a piece, on this rank
    launched = -(-most // max((most // shares // 16 + 1) * 16, LEAST_BYTES))
    if launched:
        KERNEL[world * launched, THREADS](
            pieces, heap, signals, ROUNDS[shares], tensor, out, kit.u32(shares), kit.u32(launched), CHUNK_BYTES, LEAST_BYTES
        )  # fmt: skip
    return out
