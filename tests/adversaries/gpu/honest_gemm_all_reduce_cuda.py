"""Honest: the product by torch into the symmetric buffer, the sum by a CUDA kernel."""
# problem: 13
# ranks: 4
# plan: quick
# expect: correct
# communication: custom
# platform: gpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
using namespace pkb;
extern "C" __global__ void add_all(float* const* buffers, u32* const* pads, int rank, int world, unsigned short* out, long long n) {
  const long long first = block_in_grid() * (long long)threads_in_block() + thread_in_block();
  const long long step = (long long)blocks_in_grid() * threads_in_block();
  barrier_block(pads, rank, world, blockIdx.x);
  for (long long i = first; i < n; i += step) {
    float sum = 0.f;
    for (int peer = 0; peer < world; ++peer) sum += buffers[peer][i];
    out[i] = (unsigned short)(Lanes<bf16>::pack2(sum, 0.f) & 0xffffu);
  }
  barrier_block(pads, rank, world, blockIdx.x);
}
"""
KERNEL = kit.compile(SOURCE, name="gemm_all_reduce").kernel("add_all")
STATE = {}


def solution(A_local, B_local):
    shape = (A_local.shape[0], B_local.shape[1])
    if shape not in STATE:
        buffer = symm_mem.empty(*shape, dtype=torch.float32, device=A_local.device)
        STATE[shape] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = STATE[shape]
    # Every block of a rank reads what all blocks of its peers wrote; the product is finished in stream order before.
    torch.matmul(A_local.float(), B_local.float(), out=buffer)
    out = torch.empty(shape, dtype=A_local.dtype, device=A_local.device)
    KERNEL[min(24, kit.channels(handle)), 512](kit.buffers(handle), *kit.barrier_pads(handle), out, out.numel())
    return out
