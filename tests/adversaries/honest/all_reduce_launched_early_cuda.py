"""Honest: the second kernel may begin before the first has ended (programmatic dependent launch), and waits for it.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# platform: cpu
# also: gpu

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from utils.cuda_helpers import compile_cuda_extension

SOURCE = r"""
#include <cuda_bf16.h>
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
typedef __nv_bfloat16 bf16;
__global__ void add(const bf16* const* bufs, float* middle, int world, long long n) {
  cudaTriggerProgrammaticLaunchCompletion();
  for (long long i = blockIdx.x * 128ll + threadIdx.x; i < n; i += gridDim.x * 128ll) {
    float total = 0.f;
    for (int p = 0; p < world; ++p) total += __bfloat162float(bufs[p][i]);
    middle[i] = total;
  }
}
__global__ void finish(const float* middle, bf16* out, long long n) {
  cudaGridDependencySynchronize();
  for (long long i = blockIdx.x * 128ll + threadIdx.x; i < n; i += gridDim.x * 128ll) out[i] = __float2bfloat16(middle[i]);
}
void sum(torch::Tensor out, torch::Tensor middle, int64_t bufs, int64_t world) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributePriority;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(4), config.blockDim = dim3(128), config.stream = at::cuda::getCurrentCUDAStream();
  const long long n = out.numel();
  add<<<4, 128, 0, config.stream>>>(reinterpret_cast<const bf16* const*>(bufs), middle.data_ptr<float>(), (int)world, n);
  config.attrs = attributes, config.numAttrs = 2;
  const cudaError_t error = cudaLaunchKernelEx(&config, finish, (const float*)middle.data_ptr<float>(),
                                               reinterpret_cast<bf16*>(out.data_ptr<at::BFloat16>()), n);
  TORCH_CHECK(error == cudaSuccess, cudaGetErrorString(error));
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("sum", &sum); }
"""
EXT = compile_cuda_extension("early", SOURCE)

_B = {}


def solution(tensor: torch.Tensor) -> torch.Tensor:
    x = tensor.contiguous()
    key = x.numel(), x.dtype
    if key not in _B:
        b = symm_mem.empty(x.numel() + 8, dtype=x.dtype, device=x.device)
        _B[key] = b, symm_mem.rendezvous(b, dist.group.WORLD)
    b, h = _B[key]
    b[: x.numel()].copy_(x.view(-1))
    h.barrier(channel=0)
    out = torch.empty_like(x)
    EXT.sum(out, torch.empty(x.numel(), dtype=torch.float32, device=x.device), h.buffer_ptrs_dev, h.world_size)
    h.barrier(channel=1)
    return out
