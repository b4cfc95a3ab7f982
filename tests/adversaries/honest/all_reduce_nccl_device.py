"""Honest: a one-shot all-reduce with NCCL's device API, on its stand-in for the emulated GPU. The window is peers' memory, its
barriers order everything, and nothing of it is the library.
"""
# problem: 1
# ranks: 2
# plan: races
# expect: correct
# communication: custom
# checks: no race in 4 traces of 3 calls
# platform: cpu

import torch
from pkb import kit
from pkb.kit import nccl_device

SOURCE = r"""
#include <nccl_device.h>
#include "pkb.cuh"
using namespace pkb;

extern "C" __global__ void all_reduce(const __grid_constant__ ncclDevComm comm, ncclWindow_t window, const char* in, char* out,
                                      u64 elements) {
  ncclLsaBarrierSession<ncclCoopCta> meeting{ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x};
  char* own = (char*)ncclGetLocalPointer(window, 0);
  for (u64 i = threadIdx.x; i < elements; i += blockDim.x) Lanes<bf16>::put(own + 2 * i, Lanes<bf16>::get(in + 2 * i));
  meeting.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
  for (u64 i = threadIdx.x; i < elements; i += blockDim.x) {
    float sum = 0;
    for (int peer = 0; peer < comm.nRanks; ++peer)
      sum += Lanes<bf16>::get((const char*)ncclGetLsaPointer(window, 2 * i, peer));
    Lanes<bf16>::put(out + 2 * i, sum);
  }
  meeting.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
}
"""
KERNEL = kit.compile(SOURCE, name="lsa").kernel("all_reduce")


def solution(tensor):
    tensor = tensor.contiguous()
    window = nccl_device.window(2 * tensor.numel(), tensor.device)
    out = torch.empty_like(tensor)
    KERNEL[1, 64](window.comm, window.handle, tensor, out, tensor.numel())
    return out
