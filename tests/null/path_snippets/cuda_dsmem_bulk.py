"""Trap: a bulk copy between the shared memories of a cluster stays on the GPU."""
# expect: none

SRC = r"""
__global__ void exchange(float* out) {
  __shared__ __align__(128) float tile[256];
  unsigned from = __cvta_generic_to_shared(tile), to, bar;
  asm volatile("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(to) : "r"(from));
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :: "r"(to), "r"(from), "r"(1024), "r"(bar) : "memory");
  out[threadIdx.x] = tile[threadIdx.x];
}
"""
