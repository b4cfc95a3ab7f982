"""Subtle: flags are zeroed when they are made, and nothing orders that before a peer sets one in the first call: the signal may be lost.
Later calls find the flags there: only a trace of the first ones shows it.
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
// pull all-gather: 16-byte cp.async into two shared stages, volatile flags between fences of system scope, two buffers in turn
__device__ __forceinline__ void cp16(void* s, const void* g) {
  unsigned a = (unsigned)__cvta_generic_to_shared(s);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(a), "l"(g) : "memory");
}
extern "C" __global__ void gather(char* const* bufs, unsigned* const* pads, int rank, int world, const char* in, char* out,
                                  long long bytes, long long stride, unsigned epoch) {
  __shared__ __align__(16) char stage[2][128 * 16];
  const long long half = (epoch & 1) * stride;
  const long long chunk = ((bytes + gridDim.x - 1) / gridDim.x + 15) / 16 * 16;
  const long long lo = min(bytes, blockIdx.x * chunk), hi = min(bytes, lo + chunk);
  for (long long i = lo + threadIdx.x; i < hi; i += blockDim.x) bufs[rank][half + i] = in[i];
  __syncthreads();
  if (threadIdx.x < world) {
    __threadfence_system();
    *(volatile unsigned*)(pads[threadIdx.x] + blockIdx.x * world + rank) = epoch;
    while ((int)(*(volatile unsigned*)(pads[rank] + blockIdx.x * world + threadIdx.x) - epoch) < 0) {}
    __threadfence_system();
  }
  __syncthreads();
  const long long vecs = (hi - lo) / 16;
  for (int k = 0; k < world; ++k) {
    const int p = (rank + k) % world;
    const char* src = bufs[p] + half + lo;
    char* dst = out + p * bytes + lo;
    const long long tiles = (vecs + 127) / 128;
    auto issue = [&](long long t) {
      const long long v = t * 128 + threadIdx.x;
      if (t < tiles && v < vecs) cp16(stage[t & 1] + threadIdx.x * 16, src + v * 16);
      asm volatile("cp.async.commit_group;" ::: "memory");
    };
    issue(0);
    for (long long t = 0; t < tiles; ++t) {
      issue(t + 1);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
      __syncthreads();
      const long long base = t * 2048, left = min(2048ll, vecs * 16 - base);
      for (long long j = threadIdx.x; j < left; j += blockDim.x) dst[base + j] = stage[t & 1][j];
      __syncthreads();
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    for (long long i = vecs * 16 + threadIdx.x; i < hi - lo; i += blockDim.x) dst[i] = src[i];
  }
}
"""
KERNEL = kit.compile(SOURCE, name="cpasync_gather").kernel("gather")
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
