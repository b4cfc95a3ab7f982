"""Flags are zeroed and exchanged, then the data buffer is: nothing but that second rendezvous orders the zeroes before what peers set. It is
enough: the first waits for the rank's own stream when hosts have met, and at the second all hosts have waited.
"""
# problem: 2
# ranks: 2
# plan: quick
# expect: correct
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
  if (threadIdx.x < world) {  // a flag for each block and pair of ranks, which only grows
    unsigned* theirs = pads[threadIdx.x] + blockIdx.x * world + rank;
    unsigned* mine = pads[rank] + blockIdx.x * world + threadIdx.x;
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
KERNEL = kit.compile(SOURCE, name="zeroed_before_another").kernel("gather")
_calls = [0]


def solution(tensor: torch.Tensor) -> torch.Tensor:
    x = tensor.contiguous()
    nbytes = x.numel() * x.element_size()
    stride = (nbytes + 255) // 256 * 256
    pads = sym("pads", 4 * 64 * 8, x.device)
    h = sym("data", 2 * stride, x.device)
    out = x.new_empty((h.world_size, *x.shape))
    _calls[0] += 1
    KERNEL[4, 128](kit.ptr(h.buffer_ptrs_dev), kit.ptr(pads.buffer_ptrs_dev), kit.i32(h.rank), kit.i32(h.world_size), x, out,
                   nbytes, stride, kit.u32(_calls[0]))
    return out
