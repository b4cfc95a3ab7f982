"""One-shot all-reduce: every rank reads all buffers through a table of pointers."""
# expect: sm_load_store
# kernels: reduce_all=sm_load_store

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from utils.cuda_helpers import compile_cuda_extension

SRC = r"""
#include <torch/extension.h>
__global__ void reduce_all(float* const* __restrict__ bufs, float* __restrict__ out, int n, int world) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float sum = 0.f;
    for (int r = 0; r < world; ++r) sum += bufs[r][i];  // <- sm_load_store
    out[i] = sum;
  }
}
void launch(int64_t table, torch::Tensor out, int64_t world) {
  reduce_all<<<132, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
      reinterpret_cast<float* const*>(table), out.data_ptr<float>(), out.numel(), world);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("launch", &launch); }
"""
_state = {}


def solution(x):
    if "ext" not in _state:
        _state["ext"] = compile_cuda_extension("one_shot", SRC)
        buf = symm_mem.empty(x.numel(), dtype=x.dtype, device=x.device)
        _state["buf"] = buf
        _state["hdl"] = symm_mem.rendezvous(buf, dist.group.WORLD)
    hdl = _state["hdl"]
    _state["buf"].copy_(x.view(-1))
    torch.cuda.synchronize()
    dist.get_rank()
    out = torch.empty_like(x)
    _state["ext"].launch(hdl.buffer_ptrs_dev, out, hdl.world_size)
    return out
