// The CUDA side of our torch header: streams, guards, checks, cuBLAS, small numbers in kernels. Compiled on any machine
// with nvcc, run in tests/gpu/test_torch_slim_gpu.py.
#include <ATen/cuda/CUDABlas.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <pybind11/stl.h>
#include <torch/extension.h>

template <class T>
__global__ void add_kernel(const T* a, const T* b, T* out, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}

__global__ void narrow_kernel(const float* x, at::BFloat16* b, at::Half* h, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= n) return;
  b[i] = x[i];
  h[i] = static_cast<at::Half>(x[i]);
  const __nv_bfloat16 native = static_cast<__nv_bfloat16>(b[i]);
  b[i] = at::BFloat16(native);
}

torch::Tensor add(const torch::Tensor& a, const torch::Tensor& b) {
  TORCH_CHECK(a.is_cuda() && b.is_cuda(), "expected tensors on a GPU");
  TORCH_CHECK(a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type(), "tensors that differ");
  const c10::cuda::CUDAGuard guard(a.device());
  torch::Tensor out = torch::empty_like(a);
  const int64_t n = a.numel();
  const unsigned blocks = static_cast<unsigned>(std::max<int64_t>(1, (n + 255) / 256));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, a.scalar_type(), "add", [&] {
    add_kernel<scalar_t><<<blocks, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        a.data_ptr<scalar_t>(), b.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), n);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

std::tuple<torch::Tensor, torch::Tensor> narrow(torch::Tensor x) {
  const at::cuda::OptionalCUDAGuard guard(at::device_of(x));
  auto b = torch::empty(x.sizes(), x.options().dtype(torch::kBFloat16));
  auto h = torch::empty({x.numel()}, torch::TensorOptions().dtype(at::kHalf).device(torch::kCUDA, x.get_device()));
  narrow_kernel<<<1, 256, 0, c10::cuda::getCurrentCUDAStream().stream()>>>(
      x.data_ptr<float>(), b.data_ptr<at::BFloat16>(), h.data_ptr<at::Half>(), x.numel());
  C10_CUDA_CHECK(cudaGetLastError());
  return {b, h};
}

int64_t stream() { return reinterpret_cast<int64_t>(at::cuda::getCurrentCUDAStream().stream()); }
int64_t stream_device() { return at::cuda::getCurrentCUDAStream().device_index(); }
bool has_blas() { return at::cuda::getCurrentCUDABlasHandle() != nullptr; }
void fail(int status) { C10_CUDA_CHECK(static_cast<cudaError_t>(status)); }
void bad_launch(torch::Tensor x) {
  add_kernel<float><<<1, 4096>>>(x.data_ptr<float>(), x.data_ptr<float>(), x.data_ptr<float>(), 1);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}
void synchronize() { at::cuda::getCurrentCUDAStream().synchronize(); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("add", &add);
  m.def("narrow", &narrow);
  m.def("stream", &stream);
  m.def("stream_device", &stream_device);
  m.def("has_blas", &has_blas);
  m.def("fail", &fail);
  m.def("bad_launch", &bad_launch);
  m.def("synchronize", &synchronize);
}
