"""Honest: one thread looks at the flags of all peers in turn, by volatile reads between fences, and ends the kernel after two million
rounds, some seconds on a GPU. A rank that is late for a third of a second must not bring that about.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu
# also: gpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
using namespace pkb;

__device__ void meet(u32* const* pads, int rank, int world, u32 epoch) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence_system();
    for (int peer = 0; peer < world; ++peer) *(volatile u32*)(pads[peer] + blockIdx.x * world + rank) = epoch;
    int there = 0;
    for (int tries = 0; there < world; ++tries) {
      there = 0;
      for (int peer = 0; peer < world; ++peer) there += *(volatile u32*)(pads[rank] + blockIdx.x * world + peer) >= epoch;
      if (tries > 2000000) __trap();
    }
    __threadfence_system();
  }
  __syncthreads();
}

extern "C" __global__ void all_reduce(unsigned short* const* buffers, u32* const* pads, int rank, int world, u32 epoch,
                                      const unsigned short* in, unsigned short* out, long long n) {
  const long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = first; i < n; i += step) buffers[rank][i] = in[i];
  meet(pads, rank, world, epoch);
  for (long long i = first; i < n; i += step) {
    float sum = 0.f;
    for (int peer = 0; peer < world; ++peer) sum += __uint_as_float((u32)buffers[peer][i] << 16);
    out[i] = (unsigned short)(Lanes<bf16>::pack2(sum, 0.f) & 0xffffu);
  }
  meet(pads, rank, world, epoch + 1);
}
"""
KERNEL = kit.compile(SOURCE, name="all_reduce").kernel("all_reduce")
STATE = {}


def solution(tensor):
    key = (tensor.numel(), tensor.dtype)
    if key not in STATE:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        STATE[key] = [symm_mem.rendezvous(buffer, dist.group.WORLD), 0]
    state = STATE[key]
    handle, epoch = state
    state[1] += 2
    out = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    pads = kit.barrier_pads(handle)
    KERNEL[4, 64](kit.buffers(handle), *pads, kit.u32(epoch + 1), tensor.contiguous(), out, tensor.numel())
    return out
