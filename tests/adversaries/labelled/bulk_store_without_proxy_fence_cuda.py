"""Subtle: a thread fills shared memory and has a bulk copy store it to every peer, without a proxy fence in between; the one it made
before the first write orders nothing that came later.
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
        h.barrier(channel=0)
        _S[key] = (b, h)
    return _S[key][1]


SOURCE = r"""
__device__ __forceinline__ unsigned sa(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
constexpr int TILE = 1024;
extern "C" __global__ void gather(char* const* bufs, unsigned* const* pads, int rank, int world, const char* in, char* out,
                                  long long bytes, long long stride, unsigned epoch) {
  __shared__ __align__(128) char tile[TILE];
  const long long area = (epoch & 1) * world * stride;
  const long long chunk = ((bytes + gridDim.x - 1) / gridDim.x + 15) / 16 * 16;
  const long long lo = min(bytes, blockIdx.x * chunk), hi = min(bytes, lo + chunk), bulk = (hi - lo) / 16 * 16;
  if (threadIdx.x == 0) {
    asm volatile("fence.proxy.async;" ::: "memory");
    for (long long at = 0; at < bulk; at += TILE) {
      const unsigned size = (unsigned)min((long long)TILE, bulk - at);
      for (unsigned j = 0; j < size; ++j) tile[j] = in[lo + at + j];
      for (int k = 0; k < world; ++k) {
        const int p = (rank + k) % world;
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(bufs[p] + area + rank * stride + lo + at),
                     "r"(sa(tile)), "r"(size)
                     : "memory");
      }
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
  }
  for (long long i = bulk + threadIdx.x; i < hi - lo; i += blockDim.x)
    for (int p = 0; p < world; ++p) bufs[p][area + rank * stride + lo + i] = in[lo + i];
  __syncthreads();
  if (threadIdx.x < world) {
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(pads[threadIdx.x] + blockIdx.x * world + rank), "r"(epoch) : "memory");
    unsigned v;
    do {
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(pads[rank] + blockIdx.x * world + threadIdx.x) : "memory");
    } while ((int)(v - epoch) < 0);
  }
  __syncthreads();
  for (int p = 0; p < world; ++p)
    for (long long i = lo + threadIdx.x; i < hi; i += blockDim.x) out[p * bytes + i] = bufs[rank][area + p * stride + i];
}
"""
KERNEL = kit.compile(SOURCE, name="bulk_gather").kernel("gather")
_calls = [0]


def solution(tensor: torch.Tensor) -> torch.Tensor:
    x = tensor.contiguous()
    if x.data_ptr() % 16:
        x = x.clone()
    nbytes = x.numel() * x.element_size()
    stride = (nbytes + 255) // 256 * 256
    world = dist.get_world_size()
    h = sym("data", 2 * world * stride, x.device)
    pads = sym("pads", 4 * 64 * 8, x.device)
    out = x.new_empty((world, *x.shape))
    _calls[0] += 1
    KERNEL[3, 64](kit.ptr(h.buffer_ptrs_dev), kit.ptr(pads.buffer_ptrs_dev), kit.i32(h.rank), kit.i32(world), x, out, nbytes,
                  stride, kit.u32(_calls[0]))
    return out
