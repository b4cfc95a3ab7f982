"""M13 on the device: returns the symmetric buffer that its peers push into. They wait for its next call: reused, no race."""
# problem: 2
# ranks: 4
# plan: quick
# expect: reused_output
# stage: races
# pattern: overwritten
# platform: gpu

import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
using namespace pkb;
extern "C" __global__ void all_gather(unsigned short* const* buffers, u32* const* pads, int rank, int world,
                                      const unsigned short* in, long long n) {
  const long long first = block_in_grid() * (long long)threads_in_block() + thread_in_block();
  const long long step = (long long)blocks_in_grid() * threads_in_block();
  barrier_block(pads, rank, world, blockIdx.x);   // this block's peers have read what the last call left
  for (int k = 0; k < world; ++k) {
    const int peer = (rank + k) % world;
    for (long long i = first; i < n; i += step) buffers[peer][rank * n + i] = in[i];
  }
  barrier_block(pads, rank, world, blockIdx.x);
}
"""
KERNEL = kit.compile(SOURCE, name="all_gather").kernel("all_gather")
STATE = {}


def solution(tensor):
    key = (tensor.numel(), tensor.dtype)
    if key not in STATE:
        buffer = symm_mem.empty(dist.get_world_size() * tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        STATE[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = STATE[key]
    blocks = min(24, kit.channels(handle))
    KERNEL[blocks, 512](kit.buffers(handle), *kit.barrier_pads(handle), tensor.contiguous(), tensor.numel())
    return buffer.view(handle.world_size, *tensor.shape)
