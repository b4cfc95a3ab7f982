"""Subtle: ranks meet by libcu++'s atomics of device scope, which order nothing for another GPU.
"""
# problem: 1
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
        h.barrier(channel=0)
        _S[key] = (b, h)
    return _S[key][1]


SOURCE = r"""
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
template <class T> struct Acc { using type = float; };
template <> struct Acc<double> { using type = double; };
__device__ inline float up(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float up(__half x) { return __half2float(x); }
__device__ inline float up(float x) { return x; }
__device__ inline double up(double x) { return x; }
template <class T> __device__ inline T down(typename Acc<T>::type x);
template <> __device__ inline __nv_bfloat16 down<__nv_bfloat16>(float x) { return __float2bfloat16(x); }
template <> __device__ inline __half down<__half>(float x) { return __float2half(x); }
template <> __device__ inline float down<float>(float x) { return x; }
template <> __device__ inline double down<double>(double x) { return x; }
namespace cg = cooperative_groups;
using flag_t = unsigned int;
__device__ void world_barrier(cg::grid_group& g, flag_t* const* pads, int rank, int world, flag_t epoch) {
  g.sync();
  const unsigned t = (unsigned)g.thread_rank();
  if (t < (unsigned)world) {
    cuda::atomic_ref<flag_t, cuda::thread_scope_device> theirs(pads[t][rank]);
    theirs.store(epoch, cuda::memory_order_release);
    cuda::atomic_ref<flag_t, cuda::thread_scope_device> mine(pads[rank][t]);
    while ((int)(mine.load(cuda::memory_order_acquire) - epoch) < 0) __nanosleep(32);
  }
  g.sync();
}
template <class T>
__device__ void two_shot(char* const* bufs, flag_t* const* pads, int rank, int world, const T* in, T* out, long long n,
                         flag_t epoch) {
  cg::grid_group g = cg::this_grid();
  const long long first = g.thread_rank(), step = g.size();
  T* mine = (T*)bufs[rank];
  for (long long i = first; i < n; i += step) mine[i] = in[i];
  world_barrier(g, pads, rank, world, epoch);
  const long long chunk = (n + world - 1) / world, lo = min(n, chunk * rank), hi = min(n, lo + chunk);
  for (long long i = lo + first; i < hi; i += step) {
    typename Acc<T>::type s = 0;
    for (int p = 0; p < world; ++p) s += up(((const T*)bufs[p])[i]);
    for (int p = 0; p < world; ++p) ((T*)bufs[p])[n + i] = down<T>(s);
  }
  world_barrier(g, pads, rank, world, epoch + 1);
  for (long long i = first; i < n; i += step) out[i] = mine[n + i];
}
#define K(NAME, T)                                                                                                   \
  extern "C" __global__ void two_shot_##NAME(char* const* bufs, flag_t* const* pads, int rank, int world, const T* in, \
                                             T* out, long long n, flag_t epoch) {                                    \
    two_shot<T>(bufs, pads, rank, world, in, out, n, epoch);                                                         \
  }
K(bf16, __nv_bfloat16) K(f16, __half) K(f32, float) K(f64, double)
"""
MODULE = kit.compile(SOURCE, name="coop_two_shot")
NAMES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32", torch.float64: "f64"}
_calls = [0]


def solution(tensor: torch.Tensor) -> torch.Tensor:
    x = tensor.contiguous()
    n = x.numel()
    h = sym("data", 2 * n * x.element_size(), x.device)
    pads = sym("pads", 4 * 64, x.device)
    out = torch.empty_like(x)
    k = MODULE.kernel("two_shot_" + NAMES[x.dtype])
    blocks = min(8, k.resident_blocks(128))
    epoch = 2 * _calls[0] + 1
    _calls[0] += 1
    k.launch(blocks, 128, kit.ptr(h.buffer_ptrs_dev), kit.ptr(pads.buffer_ptrs_dev), kit.i32(h.rank), kit.i32(h.world_size),
             x, out, n, kit.u32(epoch), cooperative=True)
    return out
