"""Bulk copies from shared memory into peers' buffers, and flags with system-scope stores."""
# expect: tma sm_load_store
# kernels: tma_push=tma,sm_load_store

from pkb import kit

SRC = r"""
__device__ void bulk_store(char* to, unsigned smem, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" :: "l"(to), "r"(smem), "r"(bytes) : "memory");  // <- tma
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
extern "C" __global__ void tma_push(char* const* peers, unsigned* const* pads, int rank, int world, const char* in, int bytes) {
  extern __shared__ __align__(128) char tile[];
  for (int i = threadIdx.x; i < bytes; i += blockDim.x) tile[i] = in[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int p = 0; p < world; ++p) bulk_store(peers[p] + (size_t)rank * bytes, __cvta_generic_to_shared(tile), bytes);
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    for (int p = 0; p < world; ++p)
      asm volatile("st.release.sys.global.u32 [%0], %1;" :: "l"(pads[p] + rank), "r"(1) : "memory");  // <- sm_load_store
  }
}
"""
KERNEL = kit.compile(SRC).kernel("tma_push")


def solution(x):
    stage = kit.staging(1 << 20, x.device)
    KERNEL[1, 256, 4096](kit.buffers(stage.handle), *kit.barrier_pads(stage.handle), x, 4096)
    return stage.buffer
