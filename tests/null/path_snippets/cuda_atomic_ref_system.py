"""libcu++ atomic_ref with system scope on a flag."""
# expect: sm_load_store

SRC = r"""
#include <cuda/atomic>
__global__ void wait_flag(unsigned* flag, unsigned want) {
  cuda::atomic_ref<unsigned, cuda::thread_scope_system> ref(*flag);  // <- sm_load_store
  while (ref.load(cuda::memory_order_acquire) != want) { }
}
"""
