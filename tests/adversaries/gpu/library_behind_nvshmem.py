"""The look of NVSHMEM's device functions, with a kernel that reads a peer's heap; the sum comes from the library's own
all-reduce on the stream. Right, and said to be the library: by the names of the kernels that NVSHMEM launches.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# communication: library
# platform: gpu

import ctypes

import torch
from pkb import kit
from pkb.kit import nvshmem
from pkb.kit.nvshmem.host import library

SOURCE = r"""
#include <nvshmem.h>
extern "C" __global__ void all_reduce(const float* heap, float* out) {
  out[0] = *static_cast<const float*>(nvshmem_ptr(heap, (nvshmem_my_pe() + 1) % nvshmem_n_pes()));
}
"""
KERNEL = kit.compile(SOURCE, name="look").kernel("all_reduce")
WORLD_TEAM = 0


def solution(tensor):
    n = tensor.numel()
    heap = nvshmem.symmetric(2 * n, torch.float32, name="sum")
    KERNEL[1, 1](heap, torch.empty(1, device=tensor.device))
    heap[:n].copy_(tensor.reshape(-1))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    library().nvshmemx_barrier_all_on_stream(stream)  # all have read what the sum overwrites
    source, target = (ctypes.c_void_p(heap[at:].data_ptr()) for at in (0, n))
    library().nvshmemx_float_sum_reduce_on_stream(WORLD_TEAM, target, source, ctypes.c_size_t(n), stream)
    return heap[n : 2 * n].to(tensor.dtype).reshape(tensor.shape)
