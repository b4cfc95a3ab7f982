"""A candidate as they are written most often: one torch extension with inline PTX, on signal pads. Tests change its text."""

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from utils.cuda_helpers import compile_cuda_extension

CUDA_SRC = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_bf16.h>
#include <cstdint>

__device__ __forceinline__ void put(uint32_t* flag) {
  uint32_t old;
  do {
    asm volatile("atom.global.release.sys.cas.b32 %0, [%1], 0, 1;" : "=r"(old) : "l"(flag) : "memory");
  } while (old != 0u);
}
__device__ __forceinline__ void take(uint32_t* flag) {
  uint32_t old;
  do {
    asm volatile("atom.global.sys.acquire.cas.b32 %0, [%1], 1, 0;" : "=r"(old) : "l"(flag) : "memory");
  } while (old != 1u);
}
__device__ void meet(const uint64_t* pads, int rank, int world, int channel) {
  __syncthreads();
  if (threadIdx.x < world && threadIdx.x != rank) {
    put(reinterpret_cast<uint32_t*>(pads[threadIdx.x]) + channel * world + rank);
    take(reinterpret_cast<uint32_t*>(pads[rank]) + channel * world + threadIdx.x);
  }
  __syncthreads();
}

template <typename T, int VECTOR>
__global__ void __launch_bounds__(256) reduce(const uint64_t* __restrict__ buffers, const uint64_t* __restrict__ pads,
                                              const T* __restrict__ in, T* __restrict__ out, int64_t n, int rank, int world) {
  extern __shared__ __align__(16) unsigned char memory[];
  const T** peers = reinterpret_cast<const T**>(memory);
  T* mine = reinterpret_cast<T*>(buffers[rank]);
  if (threadIdx.x < world) peers[threadIdx.x] = reinterpret_cast<const T*>(buffers[threadIdx.x]);
  const int64_t first = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = first; i < n; i += step) mine[i] = in[i];
  meet(pads, rank, world, 2 * blockIdx.x);
  for (int64_t i = first; i < n; i += step) {
    float sum = 0.f;
#pragma unroll
    for (int peer = 0; peer < world; ++peer) sum += __bfloat162float(peers[peer][i]);
    out[i] = __float2bfloat16(sum);
  }
  meet(pads, rank, world, 2 * blockIdx.x + 1);
}

void launch(torch::Tensor in, torch::Tensor out, int64_t buffers, int64_t pads, int64_t rank, int64_t world) {
  TORCH_CHECK(in.is_cuda() && in.is_contiguous(), "a contiguous CUDA tensor is expected");
  TORCH_CHECK(in.scalar_type() == torch::kBFloat16, "bf16 is expected");
  const int64_t n = in.numel();
  const int blocks = (int)std::min<int64_t>((n + 255) / 256, 16);
  cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  reduce<__nv_bfloat16, 8><<<blocks, 256, world * sizeof(void*), stream>>>(
      reinterpret_cast<const uint64_t*>(buffers), reinterpret_cast<const uint64_t*>(pads),
      reinterpret_cast<const __nv_bfloat16*>(in.data_ptr<at::BFloat16>()),
      reinterpret_cast<__nv_bfloat16*>(out.data_ptr<at::BFloat16>()), n, (int)rank, (int)world);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("launch", &launch, "sum over all ranks"); }
"""
_EXT = compile_cuda_extension("sum_over_ranks", CUDA_SRC, extra_cuda_cflags=["-O3", "--use_fast_math"])
_BUFFERS: dict[Any, Any] = {}
_SIDE = torch.cuda.Stream()


def solution(tensor: torch.Tensor) -> torch.Tensor:
    assert tensor.is_cuda
    key = (tensor.numel(), tensor.dtype)
    if key not in _BUFFERS:
        buffer = symm_mem.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        _BUFFERS[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)  # type: ignore[arg-type]
    handle = _BUFFERS[key][1]
    tensor = tensor.contiguous()
    out = torch.empty_like(tensor)
    _SIDE.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(_SIDE):
        _EXT.launch(tensor, out, handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev, handle.rank, handle.world_size)
    torch.cuda.current_stream().wait_stream(_SIDE)
    return out
