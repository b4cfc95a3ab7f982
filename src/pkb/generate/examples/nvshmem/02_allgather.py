"""All-gather with NVSHMEM: every block puts its part of the shard to all PEs, with a signal behind it, and copies what
has arrived into the result.

A block owns the same range of every shard on all ranks, so that blocks of the same number are the only ones that meet:
signal (block, peer) of a PE is the number of the last call whose part from `peer` has arrived there. The halves of the
heap are used in turn. A peer may still read one while the next call fills the other, and no longer when it is filled
again: by then this PE has seen the peer's signal of the call between, and the peer's launches run one after another.

Bytes on the links: (W-1) S out of each GPU for a shard of S bytes, which no algorithm goes below. Dependent steps: one.
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
__device__ void await(uint64_t* signal, u64 value) {
  nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, value);
  __threadfence_system();
}

extern "C" __global__ void all_gather(char* slots, uint64_t* signals, const char* in, char* out, u64 bytes, u64 part,
                                      u64 call) {
  const int me = nvshmem_my_pe(), world = nvshmem_n_pes();
  const u64 begin = blockIdx.x * part, size = begin < bytes ? min(part, bytes - begin) : 0;
  const u64 slot = (bytes + 15) / 16 * 16;
  uint64_t* mine = signals + (u64)blockIdx.x * world;
  for (int k = 1; k <= world; ++k) {
    const int peer = (me + k) % world;  // not everybody to PE 0 first
    nvshmemx_putmem_signal_block(slots + me * slot + begin, in + begin, size, mine + me, call, NVSHMEM_SIGNAL_SET, peer);
  }
  for (int k = 0; k < world; ++k) {
    const int peer = (me + k) % world;
    if (threadIdx.x == 0) await(mine + peer, call);
    __syncthreads();
    copy_block(out + peer * bytes + begin, slots + peer * slot + begin, size);
  }
}
"""
THREADS = 256
MAX_BLOCKS = 128
LEAST_BYTES = 4096  # of a block
KERNEL = kit.compile(SOURCE, name="allgather").kernel("all_gather")
calls = 0


def solution(tensor: torch.Tensor) -> torch.Tensor:
    global calls
    tensor, (_, world) = tensor.contiguous(), nvshmem.start()
    nbytes = tensor.numel() * tensor.element_size()
    elements_of_a_slot = -(-nbytes // 16) * 16 // tensor.element_size()
    heap = nvshmem.symmetric(2 * world * elements_of_a_slot, tensor.dtype, name="allgather")
    signals = nvshmem.symmetric(MAX_BLOCKS * world, torch.int64, name="allgather signals")
    out = torch.empty((world, *tensor.shape), dtype=tensor.dtype, device=tensor.device)
    blocks = max(1, min(MAX_BLOCKS, KERNEL.resident_blocks(THREADS), nbytes // LEAST_BYTES))
    part = -(-nbytes // (16 * blocks)) * 16
    calls += 1
    slots = heap[calls % 2 * (heap.numel() // 2) :]
    KERNEL[blocks, THREADS](slots, signals, tensor, out, nbytes, part, calls)
    return out
