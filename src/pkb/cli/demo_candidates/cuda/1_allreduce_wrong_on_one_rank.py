"""The mistake: the last rank leaves one peer out of its sum. Every other rank is right."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
using namespace pkb;
extern "C" __global__ void all_reduce(unsigned short* const* buffers, u32* const* pads, int rank, int world,
                                      const unsigned short* in, unsigned short* out, long long n) {
  // Block b works on the same elements on every rank, so it needs to meet only the blocks b of its peers.
  const long long first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
  for (long long i = first; i < n; i += step) buffers[rank][i] = in[i];
  barrier_block(pads, rank, world, blockIdx.x);
  for (long long i = first; i < n; i += step) {
    float sum = 0.f;
    for (int peer = 0; peer < world - (rank == world - 1); ++peer) sum += Lanes<bf16>::get(buffers[peer] + i);
    Lanes<bf16>::put(out + i, sum);
  }
  barrier_block(pads, rank, world, blockIdx.x);
}
"""
KERNEL = kit.compile(SOURCE, name="all_reduce").kernel("all_reduce")
BLOCKS, THREADS = 8, 256
_handles = {}


def _handle(tensor):
    """Of a buffer that all ranks can address. The rendezvous is collective and slow: once for each size."""
    n = tensor.numel()
    if n not in _handles:
        buffer = symm_mem.empty(n, dtype=tensor.dtype, device=tensor.device)
        _handles[n] = (buffer, symm_mem.rendezvous(buffer, dist.group.WORLD))
    return _handles[n][1]


def solution(tensor: torch.Tensor) -> torch.Tensor:
    handle = _handle(tensor)
    out = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    KERNEL[BLOCKS, THREADS](kit.buffers(handle), *kit.barrier_pads(handle), tensor.contiguous(), out, tensor.numel())
    return out
