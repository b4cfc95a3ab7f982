"""Tensor maps made of every rank's buffer: a GEMM's epilogue stores its tiles into peers."""
# expect: tma
# kernels: epilogue=tma

SRC = r"""
#include <cuda.h>
struct Maps { CUtensorMap m[8]; };
__global__ void epilogue(const __grid_constant__ Maps maps, int dev, int x, int y) {
  extern __shared__ char tile[];
  unsigned s = __cvta_generic_to_shared(tile);
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"  // <- tma
               :: "l"(&maps.m[dev]), "r"(x), "r"(y), "r"(s) : "memory");
}
void run(std::vector<int64_t> ptrs, int dev, cudaStream_t s) {
  Maps maps;
  float* const* peers = reinterpret_cast<float* const*>(ptrs.data());
  for (int r = 0; r < 8; ++r)
    cuTensorMapEncodeTiled(&maps.m[r], CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, peers[r], dims, strides, box, elem, inter, swz, prom, oob);
  epilogue<<<132, 128, 65536, s>>>(maps, dev, 0, 0);
}
"""
