// c10::cuda::CUDAGuard and OptionalCUDAGuard.
#pragma once

#include <pkb_slim/cuda.h>

namespace pkb_slim {

class OptionalCUDAGuard {
 public:
  explicit OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<Device> device) {
    if (device) set(*device);
  }
  explicit OptionalCUDAGuard(std::optional<DeviceIndex> index) {
    if (index) enter(*index);
  }
  OptionalCUDAGuard(const OptionalCUDAGuard&) = delete;
  OptionalCUDAGuard& operator=(const OptionalCUDAGuard&) = delete;
  ~OptionalCUDAGuard() {
    if (before_ >= 0) pkb_slim_restore_device(before_);
  }

 protected:
  void set(Device device) {
    TORCH_CHECK(device.is_cuda(), "expected a CUDA device, and got ", device)
    enter(device.index());
  }
  void enter(DeviceIndex index) { before_ = pkb_slim_exchange_device(index); }

 private:
  int before_ = -1;
};

class CUDAGuard : public OptionalCUDAGuard {
 public:
  explicit CUDAGuard() = delete;
  explicit CUDAGuard(DeviceIndex index) { enter(index); }
  explicit CUDAGuard(Device device) { set(device); }
};

}  // namespace pkb_slim

namespace c10 {
namespace cuda {
using pkb_slim::CUDAGuard;
using pkb_slim::OptionalCUDAGuard;
}  // namespace cuda
}  // namespace c10
