"""Honest: data is its own flag. Readers wait for a value that no element has, and the owner writes that value again two calls later.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu
# also: gpu

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
// A word that is still EMPTY has not come. Three buffers take turns: a call uses one and empties the next.
#include <cuda_bf16.h>
constexpr unsigned EMPTY = 0xffffffffu;  // two bf16 NaN with full payload; values are cleaned of it
extern "C" __global__ void init(unsigned* p, long long words) {
  for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) p[i] = EMPTY;
}
__device__ __forceinline__ unsigned ldr(const unsigned* p) {
  unsigned v;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void str(unsigned* p, unsigned v) { asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
extern "C" __global__ void lamport(unsigned* const* bufs, int rank, int world, const unsigned short* in, unsigned short* out, long long n,
                                   long long words, int use, int clear) {
  const long long at = (long long)use * world * words, other = (long long)clear * world * words;
  const long long first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
  asm volatile("fence.acq_rel.sys;" ::: "memory");  // what earlier launches cleared comes before what follows
  for (long long i = first; i < words; i += step) {
    unsigned v = in[2 * i] | (2 * i + 1 < n ? (unsigned)in[2 * i + 1] << 16 : 0u);
    if (v == EMPTY) v = 0x7fff7fffu;
    for (int p = 0; p < world; ++p) str(bufs[p] + at + rank * words + i, v);
  }
  for (long long i = first; i < words * world; i += step) str(bufs[rank] + other + i, EMPTY);
  for (long long i = first; i < words; i += step) {
    float a = 0, b = 0;
    for (int p = 0; p < world; ++p) {
      unsigned v;
      while ((v = ldr(bufs[rank] + at + p * words + i)) == EMPTY) {}
      a += __uint_as_float(v << 16);
      b += __uint_as_float(v & 0xffff0000u);
    }
    out[2 * i] = __bfloat16_as_ushort(__float2bfloat16(a));
    if (2 * i + 1 < n) out[2 * i + 1] = __bfloat16_as_ushort(__float2bfloat16(b));
  }
  asm volatile("fence.acq_rel.sys;" ::: "memory");
}
"""
MODULE = kit.compile(SOURCE, name="lamport_ar")
_B = {}


def solution(tensor: torch.Tensor) -> torch.Tensor:
    x = tensor.to(torch.bfloat16).contiguous()
    n, words, world = x.numel(), (x.numel() + 1) // 2, dist.get_world_size()
    if n not in _B:
        b = symm_mem.empty(3 * world * words, dtype=torch.int32, device=x.device)
        b.fill_(-1)
        h = symm_mem.rendezvous(b, dist.group.WORLD)
        h.barrier(channel=0)
        _B[n] = [b, h, 0]
    b, h, turn = _B[n]
    _B[n][2] += 1
    out = torch.empty_like(x)
    # Buffer turn % 3 is filled by call `turn`, read by it, and cleared by call turn + 1; it is filled again by turn + 3.
    # A peer is in call turn + 3 only when it has had my words of call turn + 2, which I sent after my call turn + 1 was over.
    MODULE.kernel("lamport")[4, 64](kit.ptr(h.buffer_ptrs_dev), kit.i32(h.rank), kit.i32(world), x, out, n, words, kit.i32(turn % 3),
                                    kit.i32((turn + 2) % 3))
    return out.to(tensor.dtype)
