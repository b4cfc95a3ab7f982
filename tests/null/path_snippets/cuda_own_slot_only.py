"""Trap: the kernel writes its own slot of the table only; the peers are read by the copy engine."""
# expect: copy_engine

import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

SRC = r"""
extern "C" __global__ void stage(float* const* bufs, int rank, const float* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) bufs[rank][i] = in[i] * 0.5f;
}
"""
KERNEL = kit.compile(SRC).kernel("stage")


def solution(x, buf, group):
    handle = symm_mem.rendezvous(buf, group)
    KERNEL[8, 256](kit.buffers(handle), kit.i32(handle.rank), x, kit.i32(x.numel()))
    return [handle.get_buffer(r, x.shape, x.dtype).clone() for r in range(handle.world_size)]  # <- copy_engine
