"""Reduce-scatter by multimem.red in a device function that a template calls."""
# expect: nvls

SRC = r"""
template <typename T> struct Red;
template <> struct Red<float> {
  static __device__ __forceinline__ void add(float* mc, float v) {
    asm volatile("multimem.red.relaxed.sys.global.add.f32 [%0], %1;" :: "l"(mc), "f"(v) : "memory");  // <- nvls
  }
};
template <typename T> __global__ void scatter_add(T* mc, const T* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) Red<T>::add(mc + i, in[i]);
}
void launch(long mc, const float* in, int n) { scatter_add<float><<<n / 256, 256>>>((float*)mc, in, n); }
"""
