"""NVSHMEM's own collectives: from the host on a stream, and a team's inside a kernel."""
# expect: library
# kernels: total=library

SRC = r"""
#include <nvshmem.h>
#include <nvshmemx.h>
__global__ void total(float* dst, const float* src, int n) {
  nvshmemx_float_sum_reduce_block(NVSHMEM_TEAM_WORLD, dst, src, n);  // <- library
}
void run(float* a, float* b, int n, cudaStream_t stream) {
  nvshmemx_float_sum_reduce_on_stream(NVSHMEM_TEAM_WORLD, a, b, n, stream);  // <- library
  total<<<1, 128, 0, stream>>>(a, b, n);
}
"""
