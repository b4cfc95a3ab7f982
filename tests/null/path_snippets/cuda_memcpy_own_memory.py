"""Trap: a device-to-device copy within the GPU stages the input; the transfer is by loads."""
# expect: sm_load_store

import torch.distributed._symmetric_memory as symm_mem
from torch.utils.cpp_extension import load_inline

SRC = r"""
__global__ void add(const int64_t* table, float* out, int n, int world) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float s = 0;
  for (int r = 0; r < world; ++r) s += reinterpret_cast<const float*>(table[r])[i];  // <- sm_load_store
  out[i] = s;
}
void run(torch::Tensor x, torch::Tensor staged, int64_t table, torch::Tensor out, int64_t world) {
  cudaMemcpyAsync(staged.data_ptr(), x.data_ptr(), x.nbytes(), cudaMemcpyDeviceToDevice);
  add<<<x.numel() / 256, 256>>>((const int64_t*)table, out.data_ptr<float>(), x.numel(), world);
}
"""
ext = load_inline("add", cpp_sources="", cuda_sources=SRC, functions=["run"])


def solution(x, staged, group):
    handle = symm_mem.rendezvous(staged, group)
    out = x.clone()
    ext.run(x, staged, handle.buffer_ptrs_dev, out, handle.world_size)
    return out
