"""A reduction in shared memory that begins to write again while other threads of its warp still read what it held: nothing but the order in
which a warp happens to run keeps them apart. What comes of it here is not used, so no number is wrong; the trace alone shows it.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: race
# stage: races
# rule: no_synchronisation
# says: (maxima.cu:8) ... (maxima.cu:9)
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

SOURCE = r"""
#include "pkb.cuh"

extern "C" __global__ void maxima(const float* in, float* out) {
  __shared__ float red[32];
  red[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  const float first = red[0];
  red[threadIdx.x] = 2.f;
  __syncthreads();
  out[threadIdx.x] = first + red[0];
}
"""
KERNEL = kit.compile(SOURCE, name="maxima").kernel("maxima")
BUFFERS = {}


def solution(tensor):
    KERNEL[1, 32](torch.zeros(32), torch.zeros(32))
    key = tuple(tensor.shape)
    if key not in BUFFERS:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        BUFFERS[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = BUFFERS[key]
    buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    total = torch.zeros(tensor.numel(), dtype=torch.float32, device=tensor.device)
    for peer in range(handle.world_size):
        total += handle.get_buffer(peer, (tensor.numel(),), tensor.dtype).float()
    handle.barrier(channel=1)
    return total.to(tensor.dtype).reshape(tensor.shape)
