"""Trap: TMA reads own memory in one kernel, another kernel reads peers with plain loads."""
# expect: sm_load_store
# kernels: stage=- gather=sm_load_store

from pkb import kit

SRC = r"""
extern "C" __global__ void stage(const char* in, float* out) {
  __shared__ __align__(128) char tile[1024];
  unsigned s = __cvta_generic_to_shared(tile);
  if (threadIdx.x == 0)
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(s), "l"(in), "r"(512), "r"(s + 512) : "memory");
  out[threadIdx.x] = tile[threadIdx.x];
}
extern "C" __global__ void gather(float* const* bufs, float* out, int n, int world) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int r = 0; r < world; ++r) out[r * n + i] = __ldcg(bufs[r] + i);  // <- sm_load_store
}
"""
MODULE = kit.compile(SRC)


def solution(x):
    stage = kit.staging(x.numel() * 4, x.device)
    MODULE.kernel("stage")[1, 128](x, stage.buffer)
    out = x.new_empty((8, x.numel()))
    MODULE.kernel("gather")[8, 128](kit.buffers(stage.handle), out, kit.i32(x.numel()), kit.i32(8))
    return out
