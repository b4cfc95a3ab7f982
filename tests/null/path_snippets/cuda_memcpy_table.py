"""Copy engine: cudaMemcpyAsync on addresses that Python reads from the handle."""
# expect: copy_engine

import torch
import torch.distributed._symmetric_memory as symm_mem
from torch.utils.cpp_extension import load_inline

SRC = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
void pull(std::vector<int64_t> ptrs, torch::Tensor out, int64_t bytes) {
  auto stream = at::cuda::getCurrentCUDAStream();
  char* to = (char*)out.data_ptr();
  for (size_t r = 0; r < ptrs.size(); ++r)
    cudaMemcpyAsync(to + r * bytes, (const void*)ptrs[r], bytes, cudaMemcpyDeviceToDevice, stream);  // <- copy_engine
}
"""
ext = load_inline("pull", cpp_sources=SRC, functions=["pull"], with_cuda=True)


def solution(x, group):
    handle = symm_mem.rendezvous(x, group)
    out = torch.empty((handle.world_size, *x.shape), device=x.device)
    ext.pull(handle.buffer_ptrs, out, x.numel() * x.element_size())
    return out
