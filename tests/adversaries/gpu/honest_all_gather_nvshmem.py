"""As NVSHMEM's own examples do it: blocking puts of a whole shard by a block, then a barrier of all PEs inside the kernel; two
buffers in turn, so that nobody writes what a peer still copies.
"""
# problem: 2
# ranks: 4
# plan: quick
# expect: correct
# communication: custom
# platform: gpu

import torch
import torch.distributed as dist
from pkb import kit
from pkb.kit import nvshmem
CODE = r'''
#include <stdio.h>
#include <nvshmem.h>
#include <nvshmemx.h>
extern "C" __global__ void gather(char *dest, const char *src, size_t nbytes) {
  int mype = nvshmem_my_pe(), npes = nvshmem_n_pes();
  for (int p = 0; p < npes; ++p)
    nvshmemx_putmem_block(dest + mype * nbytes, src, nbytes, (mype + p) % npes);
  __syncthreads();
  if (threadIdx.x == 0) nvshmem_barrier_all();
}
'''
k = kit.compile(CODE, name="gather").kernel("gather")
count = 0

def solution(tensor):
    global count
    world = dist.get_world_size()
    nb = tensor.numel() * tensor.element_size()
    flip = count % 2
    count += 1
    dest = nvshmem.symmetric(nb * world, torch.uint8, name=f"dest{flip}")
    k[1, 256](dest, tensor.contiguous(), nb)
    return dest[: nb * world].view(tensor.dtype).view(world, *tensor.shape).clone()
