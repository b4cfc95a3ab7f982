"""The look of NCCL's device API, with a window and a kernel that is launched on it; the sum comes from ncclAllReduce on a
communicator of its own, which torch does not know. Right, and said to be the library: by the names of NCCL's kernels.
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
from pkb.kit import nccl_device
from pkb.kit.nccl_device.headers import loaded_library

SOURCE = r"""
#include <nccl_device.h>
extern "C" __global__ void all_reduce(const __grid_constant__ ncclDevComm comm, ncclWindow_t window, float* out) {
  out[0] = *(const float*)ncclGetLsaPointer(window, 0, (comm.rank + 1) % comm.nRanks);
}
"""
KERNEL = kit.compile(SOURCE, name="look").kernel("all_reduce")
BF16, SUM = 9, 0
NCCL = ctypes.CDLL(str(loaded_library()))


def solution(tensor):
    window = nccl_device.window(4096, tensor.device)
    KERNEL[1, 1](window.comm, window.handle, torch.empty(1, device=tensor.device))
    out = tensor.clone(memory_format=torch.contiguous_format)
    where, stream = ctypes.c_void_p(out.data_ptr()), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    assert NCCL.ncclAllReduce(where, where, ctypes.c_size_t(out.numel()), BF16, SUM, window._communicator._comm, stream) == 0
    return out
