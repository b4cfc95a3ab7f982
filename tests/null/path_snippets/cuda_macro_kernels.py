"""Kernels that a macro writes, one a type; the macro's helper stores at system scope."""
# expect: sm_load_store
# kernels: put_f32=sm_load_store put_f16=sm_load_store

from pkb import kit

SRC = r"""
#define ST_SYS(p, v) asm volatile("st.relaxed.sys.global.u32 [%0], %1;" :: "l"(p), "r"(v) : "memory")  // <- sm_load_store
template <typename T> __device__ void put(unsigned* const* bufs, int world) {
  if (threadIdx.x < world) ST_SYS(bufs[threadIdx.x], 1u);
}
#define KERNEL(T)                                                                   \
  extern "C" __global__ void put_##T(unsigned* const* bufs, int world) {            \
    put<T>(bufs, world);                                                            \
  }
struct f32 {};
struct f16 {};
KERNEL(f32)
KERNEL(f16)
"""
MODULE = kit.compile(SRC)


def solution(x):
    stage = kit.staging(64, x.device)
    MODULE.kernel(f"put_{'f32' if x.element_size() == 4 else 'f16'}")[1, 32](kit.buffers(stage.handle), kit.i32(8))
    return x
