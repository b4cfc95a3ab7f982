"""Subtle: one block looks a hundred thousand times for each peer's flag and then goes on, while the others wait for it in a barrier of
the grid. An emulated GPU that lets anybody who waits look as often as a GPU would must let this one: it alone waits for a peer.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: race
# stage: races
# platform: cpu
# also: gpu

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

__device__ void meet(u32* const* pads, int rank, int world, u32 epoch, u32* counter) {
  barrier_grid(counter);
  if (blockIdx.x == 0 && threadIdx.x < world) {
    put(pads[threadIdx.x] + rank, epoch);
    for (int tries = 0; tries < 100000 && get(pads[rank] + threadIdx.x) < epoch; ++tries) {
    }
  }
  barrier_grid(counter);
}

extern "C" __global__ void all_reduce(unsigned short* const* buffers, u32* const* pads, int rank, int world, u32 epoch,
                                      const unsigned short* in, unsigned short* out, long long n, u32* counter) {
  const long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = first; i < n; i += step) buffers[rank][i] = in[i];
  meet(pads, rank, world, epoch, counter);
  for (long long i = first; i < n; i += step) {
    float sum = 0.f;
    for (int peer = 0; peer < world; ++peer) sum += __uint_as_float((u32)buffers[peer][i] << 16);
    out[i] = (unsigned short)(Lanes<bf16>::pack2(sum, 0.f) & 0xffffu);
  }
  meet(pads, rank, world, epoch + 1, counter);
}
"""
KERNEL = kit.compile(SOURCE, name="all_reduce").kernel("all_reduce")
STATE = {}


def solution(tensor):
    key = (tensor.numel(), tensor.dtype)
    if key not in STATE:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        counter = torch.zeros(1, dtype=torch.int32, device=tensor.device)
        STATE[key] = [symm_mem.rendezvous(buffer, dist.group.WORLD), 0, counter]
    state = STATE[key]
    handle, epoch, counter = state
    state[1] += 2
    out = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    pads = kit.barrier_pads(handle)
    KERNEL[16, 64](kit.buffers(handle), *pads, kit.u32(epoch + 1), tensor.contiguous(), out, tensor.numel(), counter)
    return out
