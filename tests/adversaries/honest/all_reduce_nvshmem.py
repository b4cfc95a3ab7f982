"""NVSHMEM without puts: every rank stages its tensor in the heap, all meet at a barrier by one block, and a kernel adds what it
reads at its peers' addresses. A second barrier keeps the next call from writing what is still read.
"""
# problem: 1
# ranks: 3
# plan: quick
# expect: correct
# communication: custom
# platform: cpu
# checks: no race in

import torch
from pkb import kit
from pkb.kit import nvshmem

SOURCE = r"""
#include <nvshmem.h>
#include <nvshmemx.h>
#include "pkb.cuh"
extern "C" __global__ void meet() { nvshmemx_barrier_all_block(); }
extern "C" __global__ void add(const char* heap, char* out, long long n) {
  for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float sum = 0;
    for (int pe = 0; pe < nvshmem_n_pes(); ++pe)
      sum += pkb::Lanes<pkb::bf16>::get(static_cast<const char*>(nvshmem_ptr(heap, pe)) + 2 * i);
    pkb::Lanes<pkb::bf16>::put(out + 2 * i, sum);
  }
}
"""
MODULE = kit.compile(SOURCE, name="staged")


def solution(tensor):
    heap = nvshmem.symmetric(tensor.numel(), tensor.dtype, name="staged")
    heap[: tensor.numel()].copy_(tensor.reshape(-1))
    out = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    MODULE.kernel("meet")[1, 32]()
    MODULE.kernel("add")[2, 64](heap, out, tensor.numel())
    MODULE.kernel("meet")[1, 32]()
    return out
