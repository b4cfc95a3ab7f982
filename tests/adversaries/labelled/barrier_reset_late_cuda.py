"""Subtle: the last to arrive at a barrier lets the others go before it sets the count to 0 again: who comes back sooner is lost. Every
access is strong, so there is no race of data: it shows where a thread stops between its two stores.
"""
# problem: 2
# ranks: 2
# plan: quick
# expect: deadlock
# stage: races
# xfail: sometimes: who stops when is by chance, and peers must come round meanwhile: 9 of 10 quick evaluations on a busy machine showed it
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


extern "C" __global__  void gather(char* const* bufs, unsigned* const* pads, int rank, int world, const char* in, char* out,
                                  long long bytes, long long stride, unsigned epoch) {
  const long long half = (epoch & 1) * stride;
  const long long chunk = ((bytes + gridDim.x - 1) / gridDim.x + 15) / 16 * 16;
  const long long lo = min(bytes, blockIdx.x * chunk), hi = min(bytes, lo + chunk);

  for (long long i = lo + threadIdx.x; i < hi; i += blockDim.x) bufs[rank][half + i] = in[i];
  __syncthreads();
  if (threadIdx.x < world) {
    unsigned* theirs = pads[threadIdx.x] + blockIdx.x * world + rank;
    unsigned* mine = pads[rank] + blockIdx.x * world + threadIdx.x;
    // one counter and one generation at rank 0 for each block
    if (threadIdx.x == 0) {
      unsigned* count = pads[0] + blockIdx.x * 2; unsigned* gen = count + 1; unsigned now, old;
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(now) : "l"(gen) : "memory");
      asm volatile("atom.acq_rel.sys.global.add.u32 %0, [%1], 1;" : "=r"(old) : "l"(count) : "memory");
      if (old == world - 1) {
        asm volatile("st.release.sys.global.u32 [%0], %1;" :: "l"(gen), "r"(now + 1) : "memory");
        asm volatile("st.relaxed.sys.global.u32 [%0], 0;" :: "l"(count) : "memory");
      } else {
        unsigned v;
        do asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(gen) : "memory"); while (v == now);
      }
    }
  }
  __syncthreads();
  for (int k = 0; k < world; ++k) {
    const int p = (rank + k) % world;
    const char* src = bufs[p] + half + lo;
    char* dst = out + p * bytes + lo;
    const long long size = hi - lo;
    for (long long i = threadIdx.x; i < size; i += blockDim.x) dst[i] = src[i];
  }

}
"""
KERNEL = kit.compile(SOURCE, name="g_w52_central_reset_late").kernel("gather")
_calls = [0]


def solution(tensor: torch.Tensor) -> torch.Tensor:
    x = tensor.contiguous()
    nbytes = x.numel() * x.element_size()
    stride = (nbytes + 255) // 256 * 256
    h = sym("data", 2 * stride, x.device)
    pads = sym("pads", 4 * 64 * 8, x.device)
    out = x.new_empty((h.world_size, *x.shape))
    _calls[0] += 1
    KERNEL.launch(4, 128, kit.ptr(h.buffer_ptrs_dev), kit.ptr(pads.buffer_ptrs_dev), kit.i32(h.rank), kit.i32(h.world_size), x, out,
                   nbytes, stride, kit.u32(_calls[0]))
    return out
