"""A kernel of NCCL's device API adds what it finds in a window, and the library has gathered it there: through the group's own
method, of which no name is listed. Right, and said to be the library: by the group's sequence number.
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
#include "pkb.cuh"
extern "C" __global__ void add(const __grid_constant__ ncclDevComm comm, ncclWindow_t window, float* out, long long n) {
  const float* all = (const float*)ncclGetLocalPointer(window, 0);
  for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
    float s = 0; for (int r = 0; r < comm.nRanks; ++r) s += all[r * n + i];
    out[i] = s;
  }
}
"""
KERNEL = kit.compile(SOURCE, name="add").kernel("add")

def solution(tensor):
    n, world = tensor.numel(), dist.get_world_size()
    window = nccl_device.window(4 * n * world, tensor.device)
    pg = dist.distributed_c10d._get_default_group()
    flat = window.buffer.view(torch.float32)[: n * world]
    pg._allgather_base(flat, tensor.float().reshape(-1).contiguous()).wait()
    out = torch.empty(n, dtype=torch.float32, device=tensor.device)
    KERNEL[4, 64](window.comm, window.handle, out, n)
    return out.to(tensor.dtype).reshape(tensor.shape)
