"""The look of NCCL's device API, with a window and a kernel that is launched on it, and torch's collective behind its back, under a
name that is put together at run time. Right, and said to be the library: by the group's sequence number.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# communication: library
# platform: cpu

import torch
import torch.distributed as dist
from pkb import kit
from pkb.kit import nccl_device

SOURCE = r"""
#include <nccl_device.h>
extern "C" __global__ void all_reduce(const __grid_constant__ ncclDevComm comm, ncclWindow_t window, float* out) {
  out[0] = *(const float*)ncclGetLsaPointer(window, 0, (comm.rank + 1) % comm.nRanks);
}
"""
KERNEL = kit.compile(SOURCE, name="look").kernel("all_reduce")


def solution(tensor):
    window = nccl_device.window(4096, tensor.device)
    KERNEL[1, 1](window.comm, window.handle, torch.empty(1, device=tensor.device))
    out = tensor.clone(memory_format=torch.contiguous_format)
    getattr(dist, "all_" + "reduce")(out)
    return out
