"""Trap: acquire and release at GPU scope between blocks of one rank are no communication."""
# expect: none

SRC = r"""
__device__ unsigned counter;
__global__ void grid_sync(float* x) {
  unsigned v;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(v) : "l"(&counter) : "memory");
  do { asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(&counter) : "memory"); } while (v < gridDim.x);
  atomicAdd(x, 1.f);
  __threadfence();
}
"""
