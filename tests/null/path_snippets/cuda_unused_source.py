"""Trap: an older source is kept in a string that nobody compiles."""
# expect: copy_engine

import torch.distributed._symmetric_memory as symm_mem

OLD_KERNEL = r"""
__global__ void all_reduce(float* mc, int n) {
  asm volatile("multimem.st.relaxed.sys.global.f32 [%0], %1;" :: "l"(mc), "f"(1.f) : "memory");
}
"""


def solution(x, group):
    handle = symm_mem.rendezvous(x, group)
    peer = handle.get_buffer((handle.rank + 1) % handle.world_size, x.shape, x.dtype)
    out = x.new_empty(x.shape)
    out.copy_(peer)  # <- copy_engine
    return out
