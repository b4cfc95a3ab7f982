"""The kit's Multimem wrappers."""
# expect: nvls

SRC = r"""
#include "pkb.cuh"
using namespace pkb;
extern "C" __global__ void broadcast(char* mc, const char* in, long long bytes) {
  for (u64 i = threadIdx.x; i < bytes / 16; i += blockDim.x)
    Multimem<bf16>::st(mc + 16 * i, ld_once(in + 16 * i));  // <- nvls
}
"""
