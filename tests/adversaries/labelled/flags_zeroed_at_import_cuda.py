"""Subtle: the flags are made, zeroed and exchanged when the file is imported, and no barrier orders that before what a peer sets in its
first call.
"""
# problem: 2
# ranks: 2
# plan: quick
# expect: race
# stage: races
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

SOURCE = r"""
extern "C" __global__ void gather(char* const* bufs, long long flags_at, int rank, int world, const char* in, char* out,
                                  long long bytes, long long stride, unsigned epoch) {
  const long long half = (epoch & 1) * stride;
  const long long chunk = ((bytes + gridDim.x - 1) / gridDim.x + 15) / 16 * 16;
  const long long lo = min(bytes, blockIdx.x * chunk), hi = min(bytes, lo + chunk);
  for (long long i = lo + threadIdx.x; i < hi; i += blockDim.x) bufs[rank][half + i] = in[i];
  __syncthreads();
  if (threadIdx.x < world) {  // a flag for each block and pair of ranks, which only grows
    unsigned* theirs = (unsigned*)(bufs[threadIdx.x] + flags_at) + blockIdx.x * world + rank;
    unsigned* mine = (unsigned*)(bufs[rank] + flags_at) + blockIdx.x * world + threadIdx.x;
    unsigned v;
    asm volatile("st.release.sys.global.u32 [%0], %1;" :: "l"(theirs), "r"(epoch) : "memory");
    do asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(mine) : "memory"); while ((int)(v - epoch) < 0);
  }
  __syncthreads();
  for (int k = 0; k < world; ++k) {
    const int p = (rank + k) % world;
    for (long long i = lo + threadIdx.x; i < hi; i += blockDim.x) out[p * bytes + i] = bufs[p][half + i];
  }
}
"""
KERNEL = kit.compile(SOURCE, name="zeroed_at_import").kernel("gather")
_calls = [0]
DATA = 1 << 22
BUFFER = symm_mem.empty(DATA + 256, dtype=torch.uint8, device=torch.device(f"cuda:{dist.get_rank()}")).zero_()
HANDLE = symm_mem.rendezvous(BUFFER, dist.group.WORLD)


def solution(tensor: torch.Tensor) -> torch.Tensor:
    x = tensor.contiguous()
    nbytes = x.numel() * x.element_size()
    assert 2 * nbytes <= DATA
    out = x.new_empty((HANDLE.world_size, *x.shape))
    _calls[0] += 1
    KERNEL[4, 128](kit.ptr(HANDLE.buffer_ptrs_dev), DATA, kit.i32(HANDLE.rank), kit.i32(HANDLE.world_size), x, out, nbytes,
                   DATA // 2, kit.u32(_calls[0]))
    return out
