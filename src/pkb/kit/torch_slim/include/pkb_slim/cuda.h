// Streams, device guards and the checks of CUDA calls: the part that needs a CUDA compiler's headers.
#pragma once

#include <cuda_runtime_api.h>

#include <pkb_slim/tensor.h>

struct cublasContext;
typedef struct cublasContext* cublasHandle_t;

#define C10_CUDA_CHECK(EXPR)                                                                              \
  do {                                                                                                    \
    const cudaError_t pkb_slim_status = EXPR;                                                             \
    if (__builtin_expect(pkb_slim_status != cudaSuccess, 0))                                              \
      pkb_slim_cuda_check(static_cast<int>(pkb_slim_status), __FILE__, __func__, unsigned(__LINE__));     \
  } while (0)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)

namespace pkb_slim {

class CUDAStream {
 public:
  CUDAStream(cudaStream_t stream, DeviceIndex device) : stream_(stream), device_(device) {}
  operator cudaStream_t() const { return stream_; }
  cudaStream_t stream() const { return stream_; }
  DeviceIndex device_index() const { return device_; }
  Device device() const { return Device(kCUDA, device_); }
  void synchronize() const { C10_CUDA_CHECK(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_;
  DeviceIndex device_;
};

inline CUDAStream getCurrentCUDAStream(DeviceIndex device = -1) {
  return CUDAStream(static_cast<cudaStream_t>(pkb_slim_current_stream(device)),
                    static_cast<DeviceIndex>(pkb_slim_stream_device(device)));
}
inline cublasHandle_t getCurrentCUDABlasHandle() { return static_cast<cublasHandle_t>(pkb_slim_blas_handle()); }

}  // namespace pkb_slim

namespace c10 {
namespace cuda {
using pkb_slim::CUDAStream;
using pkb_slim::getCurrentCUDAStream;
}  // namespace cuda
}  // namespace c10
namespace at {
namespace cuda {
using namespace c10::cuda;
using pkb_slim::getCurrentCUDABlasHandle;
}  // namespace cuda
}  // namespace at
