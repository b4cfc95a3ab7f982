"""NVSHMEM puts from a kernel: its own loads and stores, in the library's functions."""
# expect: sm_load_store
# kernels: ring=sm_load_store

SRC = r"""
#include <nvshmem.h>
#include <nvshmemx.h>
__global__ void ring(float* dst, const float* src, int n) {
  int next = (nvshmem_my_pe() + 1) % nvshmem_n_pes();
  nvshmemx_float_put_block(dst, src, n, next);  // <- sm_load_store
}
void run(float* a, float* b, int n) {
  nvshmem_init();
  float* s = (float*)nvshmem_malloc(n * 4);
  ring<<<1, 128>>>(s, b, n);
}
"""
