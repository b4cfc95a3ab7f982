"""Subtle: who has seen its flag clears it, and the sender sets it in the next call without a look at whether it was cleared: a flag that is set
before the last one is cleared is lost. Every access is strong, so there is no race of data.
"""
# problem: 2
# ranks: 2
# plan: quick
# expect: deadlock
# stage: races
# platform: cpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

_S = {}


def sym(name, nbytes, device):
    """A zeroed symmetric buffer, made once for each name and size."""
    key = (name, nbytes)
    if key not in _S:
        b = symm_mem.empty(max(nbytes, 16), dtype=torch.uint8, device=device)
        b.zero_()
        h = symm_mem.rendezvous(b, dist.group.WORLD)
        h.barrier(channel=0)
        _S[key] = (b, h)
    return _S[key][1]


SOURCE = r"""
extern "C" __global__ void gather(char* const* bufs, unsigned* const* pads, int rank, int world, const char* in, char* out,
                                  long long bytes, long long stride, unsigned epoch) {
  const long long half = (epoch & 1) * stride;
  const long long chunk = ((bytes + gridDim.x - 1) / gridDim.x + 15) / 16 * 16;
  const long long lo = min(bytes, blockIdx.x * chunk), hi = min(bytes, lo + chunk);
  for (long long i = lo + threadIdx.x; i < hi; i += blockDim.x) bufs[rank][half + i] = in[i];
  __syncthreads();
  if (threadIdx.x < world) {
    unsigned* theirs = pads[threadIdx.x] + blockIdx.x * world + rank;
    unsigned* mine = pads[rank] + blockIdx.x * world + threadIdx.x;
    unsigned v;
    asm volatile("st.release.sys.global.u32 [%0], 1;" :: "l"(theirs) : "memory");
    do asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(mine) : "memory"); while (v == 0);
    asm volatile("st.relaxed.sys.global.u32 [%0], 0;" :: "l"(mine) : "memory");
  }
  __syncthreads();
  for (int k = 0; k < world; ++k) {
    const int p = (rank + k) % world;
    for (long long i = lo + threadIdx.x; i < hi; i += blockDim.x) out[p * bytes + i] = bufs[p][half + i];
  }
}
"""
KERNEL = kit.compile(SOURCE, name="flag_cleared_late").kernel("gather")
_calls = [0]


def solution(tensor: torch.Tensor) -> torch.Tensor:
    x = tensor.contiguous()
    nbytes = x.numel() * x.element_size()
    stride = (nbytes + 255) // 256 * 256
    h = sym("data", 2 * stride, x.device)
    pads = sym("pads", 4 * 64 * 8, x.device)
    out = x.new_empty((h.world_size, *x.shape))
    _calls[0] += 1
    KERNEL[4, 128](kit.ptr(h.buffer_ptrs_dev), kit.ptr(pads.buffer_ptrs_dev), kit.i32(h.rank), kit.i32(h.world_size), x, out,
                   nbytes, stride, kit.u32(_calls[0]))
    return out
