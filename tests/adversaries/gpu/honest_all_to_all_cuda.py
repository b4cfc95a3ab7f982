"""Honest CUDA: pushes each slice to its destination."""
# problem: 8
# ranks: 4
# plan: quick
# expect: correct
# communication: custom
# platform: gpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
using namespace pkb;
extern "C" __global__ void all_to_all(unsigned short* const* buffers, u32* const* pads, int rank, int world,
                                      const unsigned short* in, unsigned short* out, long long n) {
  const long long first = block_in_grid() * (long long)threads_in_block() + thread_in_block();
  const long long step = (long long)blocks_in_grid() * threads_in_block();
  barrier_block(pads, rank, world, blockIdx.x);
  for (int k = 0; k < world; ++k) {
    const int peer = (rank + k) % world;
    for (long long i = first; i < n; i += step) buffers[peer][rank * n + i] = in[peer * n + i];
  }
  barrier_block(pads, rank, world, blockIdx.x);
  for (int peer = 0; peer < world; ++peer)
    for (long long i = first; i < n; i += step) out[peer * n + i] = buffers[rank][peer * n + i];
}
"""
KERNEL = kit.compile(SOURCE, name="all_to_all").kernel("all_to_all")
STATE = {}


def solution(tensor):
    key = (tensor.numel(), tensor.dtype)
    if key not in STATE:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        STATE[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    _, handle = STATE[key]
    out = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    blocks = min(24, kit.channels(handle))
    KERNEL[blocks, 512](
        kit.buffers(handle), *kit.barrier_pads(handle), tensor.contiguous(), out, tensor.numel() // handle.world_size
    )
    return out
