"""Trap: every name occurs, in comments and strings only."""
# expect: none
# kernels: scale=-

SRC = r"""
// multimem.st.f32 [%0], %1; cp.async.bulk.global.shared::cta [%0], [%1], 16;
/* cudaMemcpyPeerAsync(a, 0, b, 1, n, s);
   ncclAllReduce(a, b, n, t, op, c, s);
   asm volatile("st.release.sys.global.u32 [%0], %1;" :: "l"(p), "r"(v)); */
__global__ void scale(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) { printf("nvshmem_putmem(x); red.add.sys is not used here: bufs[r][i]\n"); return; }
  x[i] *= 2.f;  // later: ld.acquire.sys.global.u32
}
"""
