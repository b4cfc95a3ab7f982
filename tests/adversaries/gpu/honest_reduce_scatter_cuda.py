"""Honest CUDA: publishes all blocks and adds up its own."""
# problem: 7
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
extern "C" __global__ void reduce_scatter(unsigned short* const* buffers, u32* const* pads, int rank, int world,
                                          const unsigned short* in, unsigned short* out, long long n) {
  // Block b handles the same elements of every rank's piece, so it needs to meet only the blocks b of its peers.
  const long long first = block_in_grid() * (long long)threads_in_block() + thread_in_block();
  const long long step = (long long)blocks_in_grid() * threads_in_block();
  for (int piece = 0; piece < world; ++piece)
    for (long long i = first; i < n; i += step) buffers[rank][piece * n + i] = in[piece * n + i];
  barrier_block(pads, rank, world, blockIdx.x);
  for (long long i = first; i < n; i += step) {
    float sum = 0.f;
    for (int peer = 0; peer < world; ++peer) sum += __uint_as_float((u32)buffers[peer][rank * n + i] << 16);
    out[i] = (unsigned short)(Lanes<bf16>::pack2(sum, 0.f) & 0xffffu);
  }
  barrier_block(pads, rank, world, blockIdx.x);
}
"""
KERNEL = kit.compile(SOURCE, name="reduce_scatter").kernel("reduce_scatter")
STATE = {}


def solution(tensor):
    key = (tensor.numel(), tensor.dtype)
    if key not in STATE:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        STATE[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    _, handle = STATE[key]
    rows = tensor.shape[0] // handle.world_size
    out = torch.empty(rows, *tensor.shape[1:], dtype=tensor.dtype, device=tensor.device)
    blocks = min(24, kit.channels(handle))
    KERNEL[blocks, 512](kit.buffers(handle), *kit.barrier_pads(handle), tensor.contiguous(), out, out.numel())
    return out
