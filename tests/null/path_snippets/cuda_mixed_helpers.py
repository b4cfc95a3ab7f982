"""One helper serves own and peers' memory: only the kernel that hands it a peer communicates."""
# expect: sm_load_store
# kernels: local_copy=- remote_copy=sm_load_store

from pkb import kit

SRC = r"""
__device__ void copy16(uint4* to, const uint4* from, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) to[i] = from[i];  // <- sm_load_store
}
extern "C" __global__ void local_copy(uint4* to, const uint4* from, int n) { copy16(to, from, n); }
extern "C" __global__ void remote_copy(char* const* bufs, int src, uint4* to, int n) {
  copy16(to, reinterpret_cast<const uint4*>(bufs[src]), n);
}
"""
M = kit.compile(SRC)


def solution(x):
    stage = kit.staging(4096, x.device)
    M.kernel("local_copy")[1, 64](stage.buffer, x, kit.i32(16))
    out = x.clone()
    M.kernel("remote_copy")[1, 64](kit.buffers(stage.handle), kit.i32(1), out, kit.i32(16))
    return out
