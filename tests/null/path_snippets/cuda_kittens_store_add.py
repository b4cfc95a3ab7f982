"""ParallelKittens: tiles are added into the owner's memory by TMA, arrival told by a signal."""
# expect: tma sm_load_store

SRC = r"""
#include "kittens.cuh"
using namespace kittens;
struct globals {
  using C_pgl = pgl<gl<bf16, 1, 1, -1, -1, st_bf<64, 64>>, 8, false>;
  gl<bf16, 1, 1, -1, -1, st_bf<64, 64>> A;
  C_pgl C;
  barrier_t<8> barrier;
  int dev_idx;
};
__global__ void gemm_rs(const __grid_constant__ globals G) {
  extern __shared__ alignment_dummy shm[];
  tma_swizzle_allocator al((int*)&shm[0]);
  st_bf<64, 64>& tile = al.allocate<st_bf<64, 64>>();
  semaphore& sem = al.allocate<semaphore>();
  tma::load_async(tile, G.A, {0, 0}, sem);
  wait(sem, 0);
  int target = blockIdx.x % 8;
  tma::store_add_async(G.C[target], tile, {0, blockIdx.x});  // <- tma
  tma::store_async_wait();
  signal(G.barrier, {0, blockIdx.x}, target, 1);  // <- sm_load_store
}
"""
