"""Honest CUDA with flags of its own: each is written by a release and awaited by an acquire, both at system scope, once before
the peers' data is read and once behind. The twin of mistakes/race_relaxed_flag_cuda.py; no trace of it holds a race.
"""
# problem: 1
# ranks: 2
# plan: races
# expect: correct
# communication: custom
# checks: no race in 4 traces of 3 calls
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
using namespace pkb;

__device__ void put(u32* flag, u32 epoch) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(epoch) : "memory");
}

__device__ u32 get(const u32* flag) {
  u32 seen;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
  return seen;
}

__device__ void meet(u32* const* pads, int rank, int world, u32 epoch) {
  __syncthreads();
  if (threadIdx.x < world) {
    put(pads[threadIdx.x] + blockIdx.x * world + rank, epoch);
    while (get(pads[rank] + blockIdx.x * world + threadIdx.x) < epoch) {
    }
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
