"""NVSHMEM only for addresses: the kernel stores through nvshmem_ptr itself."""
# expect: sm_load_store

SRC = r"""
#include <nvshmem.h>
__global__ void push(float* sym, const float* in, int n, int next) {
  float* remote = (float*)nvshmem_ptr(sym, next);
  for (int i = threadIdx.x; i < n; i += blockDim.x) remote[i] = in[i];  // <- sm_load_store
}
"""
