"""S27: the race of mistakes/race_relaxed_flag_cuda.py, behind host code that finds the log in its own memory and, once its kernel has run,
sets the log back to where it was before. Noticed because the recorder knows how far it has written.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# checks: races neither proven nor excluded: a log is broken (the candidate has touched it)
# platform: cpu

import ctypes
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
using namespace pkb;

__device__ void put(u32* flag, u32 epoch) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(epoch) : "memory");
}

__device__ u32 get(const u32* flag) {
  u32 seen;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
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


def _used():
    """How much of the log is written: the third word of its head."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "pkb-race-log" in line:
            return ctypes.c_uint64.from_address(int(line.partition("-")[0], 16) + 16)
    return ctypes.c_uint64()


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
    used = _used()
    before = used.value
    KERNEL[4, 64](kit.buffers(handle), *pads, kit.u32(epoch + 1), tensor.contiguous(), out, tensor.numel())
    used.value = before
    return out
