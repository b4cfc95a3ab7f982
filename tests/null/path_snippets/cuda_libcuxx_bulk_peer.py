"""cuda::ptx wrappers of the bulk copy, into a pointer taken from a table."""
# expect: tma

SRC = r"""
#include <cuda/ptx>
__global__ void push(float** peers, int dst, size_t offset) {
  __shared__ alignas(16) float tile[1024];
  float* to = peers[dst] + offset;
  if (threadIdx.x == 0) {
    cuda::ptx::cp_async_bulk(cuda::ptx::space_global, cuda::ptx::space_shared, to, tile, sizeof(tile));  // <- tma
    cuda::ptx::cp_async_bulk_commit_group();
    cuda::ptx::cp_async_bulk_wait_group(cuda::ptx::n32_t<0>());
  }
}
"""
