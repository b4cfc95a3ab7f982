"""M19: one rank leaves the barrier inside the kernel out."""
# problem: 1
# ranks: 4
# plan: quick
# call_limit_s: 6
# expect: deadlock
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
  if (rank != 1) barrier_block(pads, rank, world, blockIdx.x);
  for (long long i = thread_in_block(); i < n; i += threads_in_block()) out[i] = in[i];
}
"""
KERNEL = kit.compile(SOURCE, name="all_reduce").kernel("all_reduce")
STATE = {}


def solution(tensor):
    key = (tensor.numel(), tensor.dtype)
    if key not in STATE:  # the rendezvous is collective and slow: once per shape
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        STATE[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    _, handle = STATE[key]
    out = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    blocks = min(24, kit.channels(handle))
    KERNEL[blocks, 512](kit.buffers(handle), *kit.barrier_pads(handle), tensor.contiguous(), out, tensor.numel())
    return out
