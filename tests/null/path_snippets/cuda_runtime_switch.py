"""A branch that the launch never takes: `use_nvls` is passed as 0."""
# expect: sm_load_store
# known gap: which branch a kernel takes for an argument's value is not computed, so both count

from pkb import kit

SRC = r"""
extern "C" __global__ void reduce(float* const* bufs, float* mc, float* out, int world, int use_nvls) {
  float s = 0;
  if (use_nvls) {
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];" : "=f"(s) : "l"(mc + threadIdx.x));
  } else {
    for (int r = 0; r < world; ++r) s += bufs[r][threadIdx.x];
  }
  out[threadIdx.x] = s;
}
"""
KERNEL = kit.compile(SRC).kernel("reduce")


def solution(x):
    stage = kit.staging(1024, x.device)
    out = x.clone()
    KERNEL[1, 256](kit.buffers(stage.handle), kit.u64(0), out, kit.i32(8), kit.i32(0))
    return out
