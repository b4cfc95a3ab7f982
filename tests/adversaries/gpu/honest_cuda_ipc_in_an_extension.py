"""Honest: the same by the CUDA runtime's own calls in a torch extension, where nothing of torch's is asked for a peer's memory.
Seen by what the library imports.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: correct
# communication: custom
# platform: gpu

import itertools

import torch
import torch.distributed as dist
from utils.cuda_helpers import compile_cuda_extension

CUDA_SRC = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void add_all(const int64_t* table, __nv_bfloat16* out, int64_t n, int world) {
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
    float sum = 0.f;
    for (int peer = 0; peer < world; ++peer)
      sum += __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(table[peer])[i]);
    out[i] = __float2bfloat16(sum);
  }
}

void check(cudaError_t error) { TORCH_CHECK(error == cudaSuccess, cudaGetErrorString(error)); }

int64_t allocate(int64_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes));
  return reinterpret_cast<int64_t>(memory);
}

pybind11::bytes handle_of(int64_t memory) {
  cudaIpcMemHandle_t handle;
  check(cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(memory)));
  return pybind11::bytes(reinterpret_cast<const char*>(&handle), sizeof handle);
}

int64_t open_handle(const std::string& bytes) {
  cudaIpcMemHandle_t handle;
  TORCH_CHECK(bytes.size() == sizeof handle);
  std::memcpy(&handle, bytes.data(), sizeof handle);
  void* memory = nullptr;
  check(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
  return reinterpret_cast<int64_t>(memory);
}

void fill(int64_t memory, torch::Tensor source) {
  check(cudaMemcpyAsync(reinterpret_cast<void*>(memory), source.data_ptr(), source.nbytes(), cudaMemcpyDeviceToDevice,
                        c10::cuda::getCurrentCUDAStream()));
}

void launch(torch::Tensor table, torch::Tensor out, int64_t world) {
  add_all<<<64, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      table.data_ptr<int64_t>(), reinterpret_cast<__nv_bfloat16*>(out.data_ptr<at::BFloat16>()), out.numel(), (int)world);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("allocate", &allocate);
  m.def("handle_of", &handle_of);
  m.def("open_handle", &open_handle);
  m.def("fill", &fill);
  m.def("launch", &launch);
}
"""
_store = dist.distributed_c10d._get_default_store()
_rank, _world = dist.get_rank(), dist.get_world_size()
_numbers = itertools.count()
_buffers = {}
_ext = None


def meet(value=b"here"):
    number = next(_numbers)
    _store.set(f"ipc-{number}-{_rank}", value)
    return [_store.get(f"ipc-{number}-{rank}") for rank in range(_world)]


def share(tensor):
    own = _ext.allocate(tensor.nbytes)
    handles = meet(_ext.handle_of(own))
    table = [own if rank == _rank else _ext.open_handle(handles[rank]) for rank in range(_world)]
    return own, torch.tensor(table, dtype=torch.int64, device=tensor.device)


def solution(tensor):
    global _ext
    if _ext is None:
        _ext = compile_cuda_extension("ipc_all_reduce", CUDA_SRC)
    key = tuple(tensor.shape)
    if key not in _buffers:
        _buffers[key] = share(tensor)
    own, table = _buffers[key]
    _ext.fill(own, tensor)
    torch.cuda.synchronize()
    meet()
    out = torch.empty_like(tensor)
    _ext.launch(table, out, _world)
    torch.cuda.synchronize()
    meet()
    return out
