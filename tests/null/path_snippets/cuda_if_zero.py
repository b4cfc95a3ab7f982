"""Trap: the NVLS version is switched off by the preprocessor; loads remain."""
# expect: sm_load_store
# kernels: reduce=sm_load_store

SRC = r"""
#define WORLD 8
#if 0
__global__ void reduce(float* mc, float* out, int n) {
  asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];" : "=f"(out[0]) : "l"(mc));
}
#else
__global__ void reduce(float* const* bufs, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float s = 0;
  for (int r = 0; r < WORLD; ++r) s += bufs[r][i];  // <- sm_load_store
  out[i] = s;
}
#endif
#if 1
void run(float** b, float* o, int n) { reduce<<<n / 256, 256>>>(b, o, n); }
#else
void run(void* a, void* b, int n) { cudaMemcpyPeerAsync(a, 0, b, 1, n, 0); }
#endif
"""
