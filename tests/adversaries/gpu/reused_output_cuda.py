"""M13 on the device: right but for its output tensor, which it keeps: reused, timed all the same, and no race."""
# problem: 1
# ranks: 4
# size: paper
# plan: races_and_timing
# expect: reused_output
# stage: races
# pattern: overwritten
# communication: custom
# timed: yes
# platform: gpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
using namespace pkb;
extern "C" __global__ void all_reduce(unsigned short* const* buffers, u32* const* pads, int rank, int world,
                                      const unsigned short* in, unsigned short* out, long long n) {
  // The same elements on every rank: block b needs to meet only the blocks b of its peers.
  const long long first = block_in_grid() * (long long)threads_in_block() + thread_in_block();
  const long long step = (long long)blocks_in_grid() * threads_in_block();
  for (long long i = first; i < n; i += step) buffers[rank][i] = in[i];
  barrier_block(pads, rank, world, blockIdx.x);
  for (long long i = first; i < n; i += step) {
    float sum = 0.f;
    for (int peer = 0; peer < world; ++peer) sum += __uint_as_float((u32)buffers[peer][i] << 16);
    out[i] = (unsigned short)(Lanes<bf16>::pack2(sum, 0.f) & 0xffffu);
  }
  barrier_block(pads, rank, world, blockIdx.x);
}
"""
KERNEL = kit.compile(SOURCE, name="all_reduce").kernel("all_reduce")
STATE = {}


def solution(tensor):
    key = (tensor.numel(), tensor.dtype)
    if key not in STATE:  # the rendezvous is collective and slow: once per shape
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        out = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        STATE[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD), out
    _, handle, out = STATE[key]
    blocks = min(24, kit.channels(handle))
    KERNEL[blocks, 512](kit.buffers(handle), *kit.barrier_pads(handle), tensor.contiguous(), out, tensor.numel())
    return out
