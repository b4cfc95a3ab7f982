"""Trap: ThunderKittens on one GPU; store_async goes to the GPU's own memory."""
# expect: none

SRC = r"""
#include "kittens.cuh"
using namespace kittens;
struct globals { gl<bf16, 1, 1, -1, -1, st_bf<64, 64>> A, C; };
__global__ void copy_tiles(const __grid_constant__ globals G) {
  extern __shared__ alignment_dummy shm[];
  tma_swizzle_allocator al((int*)&shm[0]);
  st_bf<64, 64>& tile = al.allocate<st_bf<64, 64>>();
  semaphore& sem = al.allocate<semaphore>();
  tma::load_async(tile, G.A, {0, 0}, sem);
  wait(sem, 0);
  tma::store_async(G.C, tile, {0, blockIdx.x});
  tma::store_async_wait();
}
"""
