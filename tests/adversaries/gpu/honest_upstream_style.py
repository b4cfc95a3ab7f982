"""Honest, written for upstream: a torch extension compiled through utils.cuda_helpers, with the handle's
barriers around it.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
# platform: gpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from utils.cuda_helpers import compile_cuda_extension

CUDA_SRC = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>

__global__ void add_all(const int64_t* table, __nv_bfloat16* out, int64_t n, int world) {
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
    float sum = 0.f;
    for (int peer = 0; peer < world; ++peer)
      sum += __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(table[peer])[i]);
    out[i] = __float2bfloat16(sum);
  }
}

void launch(torch::Tensor table, torch::Tensor out, int64_t world) {
  add_all<<<64, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      table.data_ptr<int64_t>(), reinterpret_cast<__nv_bfloat16*>(out.data_ptr<at::BFloat16>()), out.numel(), (int)world);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("launch", &launch); }
"""
_ext = None
_buffers = {}


def solution(tensor):
    global _ext
    if _ext is None:
        _ext = compile_cuda_extension("upstream_style_all_reduce", CUDA_SRC)
    key = tuple(tensor.shape)
    if key not in _buffers:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
        table = torch.tensor(handle.buffer_ptrs, dtype=torch.int64, device=tensor.device)
        _buffers[key] = buffer, handle, table
    buffer, handle, table = _buffers[key]
    buffer.copy_(tensor.reshape(-1))
    handle.barrier(channel=0)
    out = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    _ext.launch(table, out, handle.world_size)
    handle.barrier(channel=1)
    return out
