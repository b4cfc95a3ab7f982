"""Reads what was put before a signal without a fence after the wait, which in NVSHMEM is a volatile load. On an H200 this was
wrong where slots share a sector of L1: reading the end of one brings in the beginning of the next, before its signal has come.
"""
# problem: 2
# ranks: 2
# plan: races
# expect: race
# communication: custom
# platform: cpu

import torch
from pkb import kit
from pkb.kit import nvshmem

SOURCE = r"""
#include <nvshmem.h>
#include <nvshmemx.h>
extern "C" __global__ void gather(char* slots, uint64_t* signals, const char* in, char* out, long long bytes,
                                  unsigned long long call) {
  const int me = nvshmem_my_pe(), world = nvshmem_n_pes();
  for (int pe = 0; pe < world; ++pe)
    nvshmemx_putmem_signal_block(slots + me * bytes, in, bytes, signals + me, call, NVSHMEM_SIGNAL_SET, pe);
  for (int pe = 0; pe < world; ++pe) {
    if (threadIdx.x == 0) nvshmem_signal_wait_until(signals + pe, NVSHMEM_CMP_GE, call);
    __syncthreads();
    for (long long i = threadIdx.x; i < bytes; i += blockDim.x) out[pe * bytes + i] = slots[pe * bytes + i];
  }
}
"""
KERNEL = kit.compile(SOURCE, name="gather").kernel("gather")
calls = 0


def solution(tensor):
    global calls
    calls += 1
    _, world = nvshmem.start()
    tensor = tensor.contiguous()
    heap = nvshmem.symmetric(2 * world * tensor.numel(), tensor.dtype, name="gather")
    signals = nvshmem.symmetric(world, torch.int64, name="signals")
    out = tensor.new_empty((world, *tensor.shape))
    slots = heap[calls % 2 * (heap.numel() // 2) :]
    KERNEL[1, 64](slots, signals, tensor, out, tensor.numel() * tensor.element_size(), calls)
    return out
