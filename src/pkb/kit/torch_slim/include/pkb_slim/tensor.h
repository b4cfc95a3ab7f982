// torch::Tensor over the adaptor, and the factories.
#pragma once

#include <type_traits>
#include <utility>

#include <pkb_slim/accessor.h>

namespace pkb_slim {

class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& other) : handle_(other.handle_) {
    if (handle_) pkb_slim_retain(handle_);
  }
  Tensor(Tensor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Tensor& operator=(Tensor other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Tensor() { reset(); }
  static Tensor own(Handle handle) {
    Tensor tensor;
    tensor.handle_ = handle;
    return tensor;
  }
  Handle handle() const { return handle_; }

  bool defined() const { return handle_ != nullptr; }
  void reset() {
    if (handle_) pkb_slim_release(std::exchange(handle_, nullptr));
  }
  bool is_same(const Tensor& other) const noexcept { return handle_ == other.handle_; }
  int64_t numel() const { return pkb_slim_numel(handle_); }
  int64_t dim() const { return pkb_slim_dim(handle_); }
  int64_t ndimension() const { return dim(); }
  int64_t size(int64_t d) const { return pkb_slim_size(handle_, d); }
  int64_t stride(int64_t d) const { return pkb_slim_stride(handle_, d); }
  IntArrayRef sizes() const { return IntArrayRef(pkb_slim_sizes(handle_), static_cast<size_t>(dim())); }
  IntArrayRef strides() const { return IntArrayRef(pkb_slim_strides(handle_), static_cast<size_t>(dim())); }
  int64_t storage_offset() const { return pkb_slim_storage_offset(handle_); }
  size_t itemsize() const { return pkb_slim_element_size(handle_); }
  int64_t element_size() const { return static_cast<int64_t>(itemsize()); }
  size_t nbytes() const { return static_cast<size_t>(numel()) * itemsize(); }
  ScalarType scalar_type() const { return static_cast<ScalarType>(pkb_slim_scalar_type(handle_)); }
  TypeMeta dtype() const { return scalar_type(); }
  Device device() const {
    return Device(static_cast<DeviceType>(pkb_slim_device_type(handle_)),
                  static_cast<DeviceIndex>(pkb_slim_device_index(handle_)));
  }
  DeviceIndex get_device() const { return device().index(); }
  bool is_cuda() const { return device().is_cuda(); }
  bool is_cpu() const { return device().is_cpu(); }
  bool is_contiguous() const { return pkb_slim_is_contiguous(handle_); }
  bool requires_grad() const { return pkb_slim_requires_grad(handle_); }
  TensorOptions options() const { return TensorOptions(scalar_type()).device(device()); }

  void* data_ptr() const { return pkb_slim_data(handle_); }
  void* mutable_data_ptr() const { return data_ptr(); }
  const void* const_data_ptr() const { return data_ptr(); }
  template <class T>
  T* data_ptr() const {
    constexpr ScalarType wanted = ScalarOf<T>::value;
    TORCH_CHECK(scalar_type() == wanted, "expected scalar type ", toString(wanted), " but found ", scalar_type())
    return static_cast<T*>(pkb_slim_data(handle_));
  }
  template <class T>
  T* mutable_data_ptr() const { return data_ptr<T>(); }
  template <class T, std::enable_if_t<!std::is_const<T>::value, int> = 0>
  const T* const_data_ptr() const { return data_ptr<T>(); }
  template <class T, size_t N>
  TensorAccessor<T, N> accessor() const& {
    static_assert(N > 0, "accessor is used for indexing tensor, for scalars use *data_ptr<T>()");
    TORCH_CHECK(dim() == N, "TensorAccessor expected ", N, " dims but tensor has ", dim())
    return TensorAccessor<T, N>(data_ptr<T>(), pkb_slim_sizes(handle_), pkb_slim_strides(handle_));
  }
  template <class T, size_t N>
  TensorAccessor<T, N> accessor() && = delete;
  template <class T>
  T item() const {
    if constexpr (std::is_floating_point<T>::value) return static_cast<T>(pkb_slim_item_double(handle_));
    static_assert(std::is_arithmetic<T>::value, "the real headers know more");
    return static_cast<T>(pkb_slim_item_integer(handle_));
  }

  Tensor contiguous() const { return unary(Unary::contiguous); }
  Tensor clone() const { return unary(Unary::clone); }
  Tensor detach() const { return unary(Unary::detach); }
  Tensor cpu() const { return unary(Unary::cpu); }
  Tensor cuda() const { return unary(Unary::cuda); }
  Tensor t() const { return unary(Unary::t); }
  Tensor flatten() const { return unary(Unary::flatten); }
  Tensor view(IntArrayRef sizes) const { return own(pkb_slim_view(handle_, sizes.data(), sizes.size(), false)); }
  Tensor reshape(IntArrayRef sizes) const { return own(pkb_slim_view(handle_, sizes.data(), sizes.size(), true)); }
  Tensor narrow(int64_t d, int64_t start, int64_t length) const {
    return own(pkb_slim_narrow(handle_, d, start, length));
  }
  Tensor select(int64_t d, int64_t index) const { return own(pkb_slim_select(handle_, d, index)); }
  Tensor transpose(int64_t a, int64_t b) const { return own(pkb_slim_transpose(handle_, a, b)); }
  Tensor unsqueeze(int64_t d) const { return own(pkb_slim_unsqueeze(handle_, d)); }
  Tensor to(ScalarType type) const { return to(TensorOptions(type)); }
  Tensor to(Device device) const { return to(TensorOptions(device)); }
  Tensor to(TensorOptions options) const { return own(pkb_slim_to(handle_, &options.plain)); }
  const Tensor& zero_() const { return unary(Unary::zero_), *this; }
  const Tensor& mul_(double value) const { return pkb_slim_multiply(handle_, value), *this; }
  const Tensor& fill_(double value) const { return pkb_slim_fill(handle_, value), *this; }
  const Tensor& copy_(const Tensor& source, bool non_blocking = false) const {
    return pkb_slim_copy(handle_, source.handle_, non_blocking), *this;
  }

 private:
  Tensor unary(Unary what) const { return own(pkb_slim_unary(what, handle_)); }
  Handle handle_ = nullptr;
};

inline Tensor make(Fill fill, IntArrayRef sizes, const TensorOptions& options) {
  return Tensor::own(pkb_slim_make(fill, sizes.data(), sizes.size(), &options.plain));
}
inline Tensor like(Fill fill, const Tensor& tensor, const TensorOptions& options) {
  return Tensor::own(pkb_slim_like(fill, tensor.handle(), &options.plain));
}

// Both at:: and torch:: have these.
inline Tensor empty(IntArrayRef sizes, TensorOptions options = {}) { return make(Fill::empty, sizes, options); }
inline Tensor zeros(IntArrayRef sizes, TensorOptions options = {}) { return make(Fill::zeros, sizes, options); }
inline Tensor ones(IntArrayRef sizes, TensorOptions options = {}) { return make(Fill::ones, sizes, options); }
inline Tensor full(IntArrayRef sizes, double value, TensorOptions options) {
  return Tensor::own(pkb_slim_full(value, sizes.data(), sizes.size(), &options.plain));
}
inline Tensor empty_like(const Tensor& x, TensorOptions options = {}) { return like(Fill::empty, x, options); }
inline Tensor zeros_like(const Tensor& x, TensorOptions options = {}) { return like(Fill::zeros, x, options); }
inline Tensor ones_like(const Tensor& x, TensorOptions options = {}) { return like(Fill::ones, x, options); }
inline Tensor from_blob(void* data, IntArrayRef sizes, const TensorOptions& options = {}) {
  return Tensor::own(pkb_slim_from_blob(data, sizes.data(), sizes.size(), nullptr, &options.plain, nullptr));
}
inline Tensor from_blob(void* data, IntArrayRef sizes, void (*drop)(void*), const TensorOptions& options = {}) {
  return Tensor::own(pkb_slim_from_blob(data, sizes.data(), sizes.size(), nullptr, &options.plain, drop));
}
inline Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options = {}) {
  TORCH_CHECK(sizes.size() == strides.size(), "from_blob: ", sizes.size(), " sizes and ", strides.size(), " strides")
  return Tensor::own(pkb_slim_from_blob(data, sizes.data(), sizes.size(), strides.data(), &options.plain, nullptr));
}
inline std::optional<Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? std::make_optional(tensor.device()) : std::nullopt;
}

}  // namespace pkb_slim

namespace at {
using pkb_slim::device_of;
using pkb_slim::empty;
using pkb_slim::empty_like;
using pkb_slim::from_blob;
using pkb_slim::full;
using pkb_slim::ones;
using pkb_slim::ones_like;
using pkb_slim::Tensor;
using pkb_slim::zeros;
using pkb_slim::zeros_like;
}  // namespace at
