"""Trap: TMA feeds a GEMM from the GPU's own memory; the communication is NCCL."""
# expect: library
# kernels: gemm=-

import torch
import torch.distributed as dist
from torch.utils.cpp_extension import load_inline

SRC = r"""
#include <cuda.h>
__global__ void gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* c) {
  extern __shared__ char tile[];
  unsigned s = __cvta_generic_to_shared(tile);
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2}], [%3];"
               :: "r"(s), "l"(&a), "r"(0), "r"(s + 16) : "memory");
  c[threadIdx.x] = tile[threadIdx.x];
}
void run(torch::Tensor a, torch::Tensor b, torch::Tensor c) {
  CUtensorMap ma, mb;
  cuTensorMapEncodeTiled(&ma, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, a.data_ptr(), d, s, x, e, i, w, p, o);
  cuTensorMapEncodeTiled(&mb, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, b.data_ptr(), d, s, x, e, i, w, p, o);
  gemm<<<132, 128>>>(ma, mb, c.data_ptr<float>());
}
"""
ext = load_inline("gemm", cpp_sources="void run(torch::Tensor, torch::Tensor, torch::Tensor);", cuda_sources=SRC, functions=["run"])


def solution(a, b):
    c = torch.empty(a.shape[0], b.shape[1], device=a.device)
    ext.run(a, b, c)
    dist.all_reduce(c)  # <- library
    return c
