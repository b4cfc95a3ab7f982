"""Dispatch of a mixture of experts with NVSHMEM: rows are gathered by token on their way out, and put in order by expert
where they arrive.

Rows leave in the order expert, then token, which is by destination; what arrives from a source is by local expert, and
goes to the order local expert, then source. Only the receiver knows where that is: it has the counts of all sources. So
senders put rows into slots that a receiver has for each of them, in rounds of a few rows, and the receiver copies each
row to its place. Slots have one size whatever is sent, so no rank need know how much the others have.

Blocks come in pairs: block (peer, b) of a PE sends the rounds b, b + shares, ... of what goes to `peer` and receives those
from it. Rounds of a pair, counted over all calls, use its slots in turn; the sender waits until the receiver has emptied
one. A pair sends and receives in turn, so that two blocks that wait for each other always have an empty slot to fill.

Bytes on the links: one row for each (token, expert). Dependent steps: one for each round, of which SLOTS are on their way.
"""

import torch
import torch.distributed as dist

from pkb import kit
from pkb.kit import nvshmem

SOURCE = r"""
#include <nvshmem.h>
#include <nvshmemx.h>
#include "pkb.cuh"
using namespace pkb;
constexpr u32 SLOTS = 2;

// A wait of NVSHMEM is a volatile load: what was put before the signal is behind a fence of our own.
__device__ void await(uint64_t* signal, u64 value) {
  nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, value);
  __threadfence_system();
}

// send: where the rows for each PE begin in `tokens`, and their end. counts: [source][local expert].
extern "C" __global__ void dispatch(char* heap, uint64_t* signals, u64* rounds, const char* hidden, const long long* tokens,
                                    const long long* send, const long long* counts, char* out, u32 experts, u32 row,
                                    u32 shares, u32 launched, u32 batch, u64 slot) {
  extern __shared__ long long shift[];  // from a row's number among those of this source to its place, by local expert
  const int me = nvshmem_my_pe(), world = nvshmem_n_pes(), peer = (me + blockIdx.x / launched) % world;
  const u32 share = blockIdx.x % launched, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  long long* ends = shift + experts;  // where the rows of each expert end among those of this source
  const u64 here = (u64)peer * shares + share, there = (u64)me * shares + share;
  u64 sent = rounds[2 * here], taken = rounds[2 * here + 1];
  if (threadIdx.x == 0) {
    long long place = 0, arrived = 0;
    for (u32 expert = 0; expert < experts; ++expert)
      for (int source = 0; source < world; ++source) {
        const long long count = counts[(u64)source * experts + expert];
        if (source == peer) shift[expert] = place - arrived, ends[expert] = arrived += count;
        place += count;
      }
  }
  __syncthreads();
  uint64_t *full = signals, *empty = signals + (u64)world * shares;
  const long long from_end = send[peer + 1], to_end = experts ? ends[experts - 1] : 0;
  long long from = send[peer] + (long long)share * batch, to = (long long)share * batch;
  for (; from < from_end || to < to_end; from += (long long)shares * batch, to += (long long)shares * batch) {
    if (from < from_end) {
      if (threadIdx.x == 0 && sent >= SLOTS) await(empty + here, sent - SLOTS + 1);
      __syncthreads();
      char* target = heap + (there * SLOTS + sent % SLOTS) * slot;
      for (long long i = warp; i < batch && from + i < from_end; i += warps)
        nvshmemx_putmem_warp(target + i * row, hidden + tokens[from + i] * row, row, peer);
      __syncthreads();
      ++sent;
      if (threadIdx.x == 0) nvshmem_fence(), nvshmemx_signal_op(full + there, sent, NVSHMEM_SIGNAL_SET, peer);
    }
    if (to < to_end) {
      if (threadIdx.x == 0) await(full + here, taken + 1);
      __syncthreads();
      const char* source = heap + (here * SLOTS + taken % SLOTS) * slot;
      const long long count = min((long long)batch, to_end - to);
      u32 expert = 0;
      for (long long i = 0; i < count; ++i) {
        while (to + i >= ends[expert]) ++expert;
        copy_block(out + (to + i + shift[expert]) * row, source + i * row, row);
      }
      __syncthreads();
      ++taken;
      if (threadIdx.x == 0) nvshmem_fence(), nvshmemx_signal_op(empty + there, taken, NVSHMEM_SIGNAL_SET, peer);
    }
  }
  if (threadIdx.x == 0) rounds[2 * here] = sent, rounds[2 * here + 1] = taken;
}
"""
SLOTS = 2
THREADS = 256
SLOT_BYTES = 64 * 1024  # or a row, if that is larger
MOST_BLOCKS = 128
KERNEL = kit.compile(SOURCE, name="dispatch").kernel("dispatch")
ROUNDS = {}


def solution(
    hidden_states, expert_mask, num_experts, input_splits, output_splits, num_global_tokens_per_local_expert, group=None
):
    _, world = nvshmem.start()
    if dist.get_world_size(group) != world or num_experts % world:
        raise ValueError(f"{num_experts} experts for {world} PEs, which are all ranks")
    hidden = hidden_states.reshape(-1, hidden_states.shape[-1]).contiguous()
    send, receive = ([int(rows) for rows in splits] for splits in (input_splits, output_splits))
    routing_map = expert_mask.sum(dim=1)
    token_of_row = torch.nonzero_static(routing_map, size=sum(send))[:, 1].contiguous()
    counts = num_global_tokens_per_local_expert.to(torch.int64).contiguous()
    begins = torch.tensor([sum(send[:peer]) for peer in range(world + 1)], device=hidden.device)
    out = hidden.new_empty((sum(receive), hidden.shape[1]))
    row, experts = hidden.shape[1] * hidden.element_size(), num_experts // world
    slot = max(SLOT_BYTES, -(-row // 16) * 16)
    # The same on all ranks, whatever they send: a pair of blocks must agree on its rounds.
    shared = 16 * experts
    shares, batch = max(1, min(MOST_BLOCKS, KERNEL.resident_blocks(THREADS, shared=shared)) // world), slot // row
    heap = nvshmem.symmetric(world * shares * SLOTS * slot, name=f"dispatch {slot}")
    signals = nvshmem.symmetric(2 * world * shares, torch.int64, name=f"dispatch signals {slot} {shares}")
    if (slot, shares) not in ROUNDS:
        ROUNDS[slot, shares] = torch.zeros(2 * world * shares, dtype=torch.int64, device=hidden.device)
    launched = min(shares, -(-max(*send, *receive) // batch))
    if launched:
        sizes = [kit.u32(n) for n in (experts, row, shares, launched, batch)]
        KERNEL[world * launched, THREADS, shared](
            heap, signals, ROUNDS[slot, shares], hidden, token_of_row, begins, counts, out, *sizes, slot
        )  # fmt: skip
    return out, routing_map, token_of_row, hidden.shape
