"""NCCL's device API with the multicast address."""
# expect: nvls

SRC = r"""
#include <nccl_device.h>
__device__ float multimem_sum(float* p) {
  float v;
  asm volatile("multimem.ld_reduce.global.add.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");  // <- nvls
  return v;
}
__global__ void all_reduce(ncclWindow_t win, size_t offset, float* out, size_t n, ncclDevComm comm) {
  float* mm = (float*)ncclGetLsaMultimemPointer(win, offset, comm);  // <- nvls
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) out[i] = multimem_sum(mm + i);
}
"""
