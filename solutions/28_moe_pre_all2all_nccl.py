"""MoE dispatch with NCCL's device API: every rank fetches the rows of its experts straight from their tokens.

A rank stages its hidden states, the token of each row that it emits (by expert, then by token) and where each expert's
rows begin, in its window. When all have, a warp takes a row of the result: its place says expert and source, the
source's lists say which token, and the row is read from there and stored at its final place. Nothing is packed or
sorted.

Links, busiest direction of a GPU: the rows that travel, once for each expert; one dependent step. Grids do not wait:
launches of one warp meet the peers, after staging, and after fetching, so that the next call may stage again.
"""

import torch
import torch.distributed as dist

from pkb import kit
from pkb.kit import nccl_device

SOURCE = r"""
#include <nccl_device.h>
#include "pkb.cuh"
using namespace pkb;

extern "C" __global__ void all_met(const __grid_constant__ ncclDevComm comm) {
  ncclLsaBarrierSession<ncclCoopCta> meeting{ncclCoopCta(), comm, ncclTeamTagLsa(), 0};
  meeting.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
}

// Ends of the segments of the result, by local expert, then by source: the row's segment is the first that ends behind it.
__device__ __forceinline__ u32 segment_of(const long long* ends, u32 segments, long long row) {
  u32 low = 0, high = segments - 1;
  while (low < high) {
    const u32 middle = (low + high) / 2;
    if (ends[middle] > row) high = middle;
    else low = middle + 1;
  }
  return low;
}

extern "C" __global__ void __launch_bounds__(256, 4)
    fetch(const __grid_constant__ ncclDevComm comm, ncclWindow_t window, const long long* ends, char* out, u64 rows,
          u64 row_bytes, u64 tokens_at, u64 firsts_at, u32 local_experts) {
  const u32 world = comm.nRanks, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  for (u64 row = warp; row < rows; row += gridDim.x * blockDim.x / 32) {
    const u32 segment = segment_of(ends, local_experts * world, row), source = segment % world;
    const u32 expert = comm.rank * local_experts + segment / world;
    const u64 begin = segment ? ends[segment - 1] : 0;
    const long long* firsts = (const long long*)ncclGetLsaPointer(window, firsts_at, source);
    const long long* tokens = (const long long*)ncclGetLsaPointer(window, tokens_at, source);
    const long long token = tokens[firsts[expert] + (row - begin)];
    copy(out + row * row_bytes, ncclGetLsaPointer(window, token * row_bytes, source), row_bytes, lane, 32);
  }
}
"""
THREADS = 256
MODULE = kit.compile(SOURCE, name="dispatch_nccl")


def solution(
    hidden_states,
    expert_mask,
    num_experts,
    input_splits,
    output_splits,
    num_global_tokens_per_local_expert,
    group=None,
):
    group = group or dist.group.WORLD
    world = dist.get_world_size(group)
    if num_experts % world:
        raise ValueError(f"{num_experts} experts cannot be shared equally by {world} ranks")
    hidden = hidden_states.reshape(-1, hidden_states.shape[-1]).contiguous()
    routing_map = expert_mask.sum(dim=1)
    chosen = routing_map != 0
    token_of_row = chosen.nonzero()[:, 1]  # row-major: by expert, then by token
    per_expert = chosen.sum(dim=1)
    ends = num_global_tokens_per_local_expert.reshape(world, -1).t().reshape(-1).cumsum(0)
    rows = sum(int(each) for each in output_splits)

    row_bytes, most_rows = hidden.shape[1] * hidden.element_size(), expert_mask.shape[1] * expert_mask.shape[2]
    tokens_at = -(-hidden.shape[0] * row_bytes // 16) * 16
    firsts_at = tokens_at + 8 * most_rows
    window = nccl_device.window(firsts_at + 8 * num_experts, hidden.device, group=group)
    staged = window.buffer
    staged[: hidden.shape[0] * row_bytes].view(hidden.dtype).copy_(hidden.reshape(-1))
    staged[tokens_at : tokens_at + 8 * token_of_row.numel()].view(torch.int64).copy_(token_of_row)
    staged[firsts_at : firsts_at + 8 * num_experts].view(torch.int64).copy_(per_expert.cumsum(0) - per_expert)

    meet, fetch = MODULE.kernel("all_met")[1, 32], MODULE.kernel("fetch")
    out = hidden.new_empty((rows, hidden.shape[1]))
    blocks = max(1, min(fetch.resident_blocks(THREADS), -(-rows // (THREADS // 32))))
    meet(window.comm)  # all have staged
    places = (kit.u64(tokens_at), kit.u64(firsts_at), kit.u32(num_experts // world))
    fetch[blocks, THREADS](window.comm, window.handle, ends, out, rows, row_bytes, *places)
    meet(window.comm)  # all have fetched
    return out, routing_map, token_of_row, hidden.shape
