"""All-to-all of uneven pieces with NCCL's device API: one launch, whatever the splits.

A rank knows its own splits only, and windows have the same size on all ranks. So pieces pass through slots of a fixed
size, one for each destination, in rounds. How many rounds there are all ranks must know alike: every block tells its
peers the length of its rank's longest piece by NCCL's low-latency all-to-all, 8 bytes with their flag in one store, and
takes the longest of all.

In a round a block stages its part of each slot in its own window, meets the blocks of the same number, and fetches what
is for it. Rounds use two sets of slots in turn: who stages a set again has met its peers in the round between, after
they had fetched it. The last barrier is for the next call.

Links, busiest direction of a GPU: what a rank sends or receives; dependent steps: one for the lengths, one a round.
"""

import ctypes

import torch.distributed as dist

from pkb import kit
from pkb.kit import nccl_device

SOURCE = r"""
#include <nccl_device.h>
#include "pkb.cuh"
using namespace pkb;

struct Cuts {  // where pieces begin, in bytes, by destination and by source
  u64 sent[MOST_RANKS + 1], received[MOST_RANKS + 1];
};

__device__ __forceinline__ u64 within(u64 bytes, u64 begin, u64 most) {
  return bytes <= begin ? 0 : bytes - begin < most ? bytes - begin : most;
}

extern "C" __global__ void __launch_bounds__(256, 2)
    exchange(const __grid_constant__ ncclDevComm comm, ncclWindow_t window, const __grid_constant__ ncclLLA2AHandle told,
             const __grid_constant__ Cuts cuts, const char* in, char* out, u64 slot) {
  const u32 rank = comm.rank, world = comm.nRanks;
  __shared__ u64 longest_of[MOST_RANKS];
  u64 longest = 0;
  for (u32 peer = 0; peer < world; ++peer) {
    const u64 bytes = cuts.sent[peer + 1] - cuts.sent[peer];
    if (peer != rank && bytes > longest) longest = bytes;
  }
  {
    ncclLLA2ASession<ncclCoopCta> telling{ncclCoopCta(), comm, ncclTeamLsa(comm), told, blockIdx.x, (int)world};
    if (threadIdx.x < world) {
      telling.send((int)threadIdx.x, (int)rank, longest);
      longest_of[threadIdx.x] = telling.recv<u64>((int)threadIdx.x);
    }
    telling.endEpoch(ncclCoopCta());
  }
  for (u32 peer = 0; peer < world; ++peer) longest = longest_of[peer] > longest ? longest_of[peer] : longest;

  ncclLsaBarrierSession<ncclCoopCta> meeting{ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x};
  copy_grid(out + cuts.received[rank], in + cuts.sent[rank], cuts.sent[rank + 1] - cuts.sent[rank]);
  const u64 part = slot / gridDim.x, own = blockIdx.x * part;  // of every slot
  for (u64 round = 0; round * slot < longest; ++round) {
    const u64 set = round % 2 * world * slot, begin = round * slot + own;
    for (u32 k = 1; k < world; ++k) {
      const u32 peer = (rank + k) % world;
      copy_block(ncclGetLocalPointer(window, set + peer * slot + own), in + cuts.sent[peer] + begin,
                 within(cuts.sent[peer + 1] - cuts.sent[peer], begin, part));
    }
    meeting.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
    for (u32 k = 1; k < world; ++k) {  // not everybody at the same source first
      const u32 peer = (rank + world - k) % world;
      copy_block(out + cuts.received[peer] + begin, ncclGetLsaPointer(window, set + rank * slot + own, peer),
                 within(cuts.received[peer + 1] - cuts.received[peer], begin, part));
    }
  }
  meeting.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
}
"""
MOST_RANKS = 64
THREADS = 256
BLOCKS = 32  # all ranks must agree, and none knows how much the others send
SLOT_BYTES = 1 << 20
KERNEL = kit.compile(SOURCE, name="alltoallv_nccl", options=["-DMOST_RANKS=64"]).kernel("exchange")


class Cuts(ctypes.Structure):
    _fields_ = (("sent", ctypes.c_uint64 * (MOST_RANKS + 1)), ("received", ctypes.c_uint64 * (MOST_RANKS + 1)))


def solution(local_tensor, input_split_sizes=None, output_split_sizes=None, group=None):
    group, local_tensor = group or dist.group.WORLD, local_tensor.contiguous()
    world, rows = dist.get_world_size(group), local_tensor.shape[0]
    if world > MOST_RANKS:
        raise ValueError(f"at most {MOST_RANKS} ranks")
    row_bytes = local_tensor[:1].numel() * local_tensor.element_size() if rows else 0
    row_bytes = row_bytes or local_tensor.new_empty((1, *local_tensor.shape[1:])).numel() * local_tensor.element_size()
    cuts, total = Cuts(), 0
    for cut, splits in ((cuts.sent, input_split_sizes), (cuts.received, output_split_sizes)):
        total = 0
        for peer, each in enumerate([rows // world] * world if splits is None else splits):
            total += int(each)
            cut[peer + 1] = total * row_bytes
    if cuts.sent[world] != rows * row_bytes:
        raise ValueError(f"input splits {input_split_sizes} do not add up to the {rows} rows of local_tensor")
    window = nccl_device.window(2 * world * SLOT_BYTES, local_tensor.device, group=group)
    out = local_tensor.new_empty((total, *local_tensor.shape[1:]))
    blocks = 1 << (min(BLOCKS, window.resident_blocks(KERNEL, THREADS)).bit_length() - 1)  # parts of a slot are aligned
    KERNEL[blocks, THREADS](window.comm, window.handle, window.ll_a2a, cuts, local_tensor, out, SLOT_BYTES)
    return out
