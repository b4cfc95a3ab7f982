// Streams, devices and cuBLAS: only where torch is a CUDA build.
#pragma once

// Without these libraries' headers a source that uses cuBLAS does not compile, with whichever torch header.
#if __has_include(<cublas_v2.h>) && __has_include(<cusparse.h>) && __has_include(<cusolverDn.h>)
#define PKB_SLIM_BLAS
#include <ATen/cuda/CUDAContextLight.h>
#endif
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

extern "C" {

void pkb_slim_cuda_check(int status, const char* file, const char* function, unsigned line) {
  guarded([&] { c10::cuda::c10_cuda_check_implementation(status, file, function, line, true); });
}
void* pkb_slim_current_stream(int device) {
  return guarded([&] { return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).stream(); });
}
int pkb_slim_stream_device(int device) {
  return guarded([&] { return device < 0 ? static_cast<int>(c10::cuda::current_device()) : device; });
}
int pkb_slim_exchange_device(int device) {
  return guarded([&] {
    const int before = c10::cuda::current_device();
    if (device >= 0 && device != before) c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
    return before;
  });
}
// In a destructor: an error of an earlier kernel must not end the process here; whoever checks next sees it.
void pkb_slim_restore_device(int device) {
  try {
    if (c10::cuda::current_device() != device) c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
  } catch (const c10::Error&) {
  }
}
void* pkb_slim_blas_handle() {
#ifdef PKB_SLIM_BLAS
  return guarded([&] { return at::cuda::getCurrentCUDABlasHandle(); });
#else
  throw pkb_slim::Error("there were no cuBLAS headers when the adaptor to torch was compiled");
#endif
}

}  // extern "C"
