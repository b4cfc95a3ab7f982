"""Trap: a device function with multimem, and a kernel that uses it, are never launched."""
# expect: sm_load_store

from pkb import kit

SRC = r"""
__device__ float mm_load(const float* p) {
  float v;
  asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];" : "=f"(v) : "l"(p));
  return v;
}
extern "C" __global__ void nvls_version(const float* mc, float* out) { out[threadIdx.x] = mm_load(mc + threadIdx.x); }
extern "C" __global__ void plain_version(float* const* bufs, float* out, int world) {
  float s = 0;
  for (int r = 0; r < world; ++r) s += bufs[r][threadIdx.x];  // <- sm_load_store
  out[threadIdx.x] = s;
}
"""
KERNEL = kit.compile(SRC).kernel("plain_version")


def solution(x):
    stage = kit.staging(x.numel() * 4, x.device)
    out = x.clone()
    KERNEL[1, 256](kit.buffers(stage.handle), out, kit.i32(8))
    return out
