"""Fetches tiles from a peer with a bulk copy; the peer's address comes from Python as a number."""
# expect: tma
# kernels: fetch=tma

import torch.distributed._symmetric_memory as symm_mem
from pkb import kit

SRC = r"""
extern "C" __global__ void fetch(const char* from, char* out, int bytes) {
  __shared__ __align__(128) char tile[8192];
  __shared__ __align__(8) unsigned long long bar;
  unsigned s = __cvta_generic_to_shared(tile), b = __cvta_generic_to_shared(&bar);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(b));
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(b), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"  // <- tma
                 :: "r"(s), "l"(from), "r"(bytes), "r"(b) : "memory");
  }
  for (int i = threadIdx.x; i < bytes; i += blockDim.x) out[i] = tile[i];
}
"""
KERNEL = kit.compile(SRC).kernel("fetch")


def solution(x, group):
    handle = symm_mem.rendezvous(x, group)
    peer = (handle.rank + 1) % handle.world_size
    out = x.new_empty(x.shape)
    KERNEL[1, 128](kit.ptr(handle.buffer_ptrs[peer]), out, kit.i32(8192))
    return out
