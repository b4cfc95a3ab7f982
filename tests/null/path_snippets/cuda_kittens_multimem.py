"""ParallelKittens: in-switch reduction through the layout's multicast pointer."""
# expect: nvls

SRC = r"""
#include "kittens.cuh"
using namespace kittens;
struct globals { using T_pgl = pgl<gl<bf16, -1, -1, -1, -1>, 8, true>; T_pgl tensor; int dev_idx; };
__global__ void all_reduce(const __grid_constant__ globals G) {
  size_t idx = blockIdx.x * 512 + threadIdx.x * 2;
  bf16_2 tmp;
  multimem<bf16_2>::ld_reduce<reduce_op::ADD>(tmp, reinterpret_cast<bf16_2*>(&G.tensor.mc_ptr[idx]));  // <- nvls
  multimem<bf16_2>::st(reinterpret_cast<bf16_2*>(&G.tensor.mc_ptr[idx]), tmp);  // <- nvls
}
"""
