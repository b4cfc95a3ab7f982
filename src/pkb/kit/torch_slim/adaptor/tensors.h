// Tensors: facts straight from the TensorImpl, operations through ATen.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/UndefinedTensorImpl.h>

#define PKB_SLIM_SCALAR(type, name, number) static_assert(static_cast<int>(c10::ScalarType::name) == number, #name);
#include <pkb_slim/scalar_types.inc>
#undef PKB_SLIM_SCALAR

namespace {

using pkb_slim::Handle;

// Runs what may throw one of torch's errors; it goes on as ours, which keeps it.
template <class F>
auto guarded(F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const c10::Error& error) {
    throw pkb_slim::Error(error.what_without_backtrace(), pkb_slim::ErrorKind::runtime, std::current_exception());
  }
}

const c10::TensorImpl* impl(Handle handle) {
  return handle ? static_cast<const c10::TensorImpl*>(handle) : c10::UndefinedTensorImpl::singleton();
}

at::Tensor borrowed(Handle handle) {
  if (!handle) return at::Tensor();
  using Pointer = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  return at::Tensor(Pointer::reclaim_copy(static_cast<c10::TensorImpl*>(handle)));
}

Handle given(at::Tensor tensor) { return tensor.defined() ? tensor.unsafeReleaseTensorImpl() : nullptr; }

c10::TensorOptions options_of(const pkb_slim::Options& plain) {
  c10::TensorOptions options;
  if (plain.dtype >= 0) options = options.dtype(static_cast<c10::ScalarType>(plain.dtype));
  if (plain.device_type >= 0) {
    options = options.device(static_cast<c10::DeviceType>(plain.device_type), static_cast<int8_t>(plain.device_index));
  }
  if (plain.pinned >= 0) options = options.pinned_memory(plain.pinned != 0);
  return options;
}

at::Tensor finished(at::Tensor tensor, const pkb_slim::Options& plain) {
  return plain.requires_grad > 0 ? tensor.set_requires_grad(true) : tensor;
}

}  // namespace

extern "C" {

void pkb_slim_retain(Handle handle) { c10::raw::intrusive_ptr::incref(static_cast<c10::TensorImpl*>(handle)); }
void pkb_slim_release(Handle handle) { c10::raw::intrusive_ptr::decref(static_cast<c10::TensorImpl*>(handle)); }
int64_t pkb_slim_numel(Handle t) { return impl(t)->numel(); }
int64_t pkb_slim_dim(Handle t) { return impl(t)->dim(); }
int64_t pkb_slim_size(Handle t, int64_t dim) { return guarded([&] { return impl(t)->size(dim); }); }
int64_t pkb_slim_stride(Handle t, int64_t dim) { return guarded([&] { return borrowed(t).stride(dim); }); }
const int64_t* pkb_slim_sizes(Handle t) { return guarded([&] { return impl(t)->sizes().data(); }); }
const int64_t* pkb_slim_strides(Handle t) { return guarded([&] { return impl(t)->strides().data(); }); }
int64_t pkb_slim_storage_offset(Handle t) { return guarded([&] { return impl(t)->storage_offset(); }); }
size_t pkb_slim_element_size(Handle t) { return guarded([&] { return impl(t)->itemsize(); }); }
int pkb_slim_scalar_type(Handle t) {
  return guarded([&] { return static_cast<int>(c10::typeMetaToScalarType(impl(t)->dtype())); });
}
int pkb_slim_device_type(Handle t) { return guarded([&] { return static_cast<int>(impl(t)->device().type()); }); }
int pkb_slim_device_index(Handle t) { return guarded([&] { return static_cast<int>(impl(t)->device().index()); }); }
bool pkb_slim_is_contiguous(Handle t) { return guarded([&] { return impl(t)->is_contiguous(); }); }
bool pkb_slim_requires_grad(Handle t) { return guarded([&] { return impl(t)->requires_grad(); }); }
void* pkb_slim_data(Handle t) { return guarded([&] { return borrowed(t).data_ptr(); }); }

Handle pkb_slim_make(pkb_slim::Fill fill, const int64_t* sizes, size_t n, const pkb_slim::Options* plain) {
  return guarded([&] {
    const c10::IntArrayRef shape(sizes, n);
    const auto options = options_of(*plain);
    switch (fill) {
      case pkb_slim::Fill::empty: return given(finished(at::empty(shape, options), *plain));
      case pkb_slim::Fill::zeros: return given(finished(at::zeros(shape, options), *plain));
      default: return given(finished(at::ones(shape, options), *plain));
    }
  });
}

Handle pkb_slim_like(pkb_slim::Fill fill, Handle t, const pkb_slim::Options* plain) {
  return guarded([&] {
    const auto options = options_of(*plain);
    switch (fill) {
      case pkb_slim::Fill::empty: return given(finished(at::empty_like(borrowed(t), options), *plain));
      case pkb_slim::Fill::zeros: return given(finished(at::zeros_like(borrowed(t), options), *plain));
      default: return given(finished(at::ones_like(borrowed(t), options), *plain));
    }
  });
}

Handle pkb_slim_full(double value, const int64_t* sizes, size_t n, const pkb_slim::Options* plain) {
  return guarded([&] {
    return given(finished(at::full(c10::IntArrayRef(sizes, n), value, options_of(*plain)), *plain));
  });
}

Handle pkb_slim_from_blob(
    void* data, const int64_t* sizes, size_t n, const int64_t* strides, const pkb_slim::Options* plain,
    void (*drop)(void*)) {
  return guarded([&] {
    const c10::IntArrayRef shape(sizes, n);
    const auto options = options_of(*plain);
    if (drop) return given(at::from_blob(data, shape, drop, options));
    return given(strides ? at::from_blob(data, shape, c10::IntArrayRef(strides, n), options)
                         : at::from_blob(data, shape, options));
  });
}

Handle pkb_slim_unary(pkb_slim::Unary what, Handle t) {
  return guarded([&] {
    at::Tensor tensor = borrowed(t);
    switch (what) {
      case pkb_slim::Unary::contiguous: return given(tensor.contiguous());
      case pkb_slim::Unary::clone: return given(tensor.clone());
      case pkb_slim::Unary::detach: return given(tensor.detach());
      case pkb_slim::Unary::zero_: return given(tensor.zero_());
      case pkb_slim::Unary::cpu: return given(tensor.cpu());
      case pkb_slim::Unary::cuda: return given(tensor.cuda());
      case pkb_slim::Unary::t: return given(tensor.t());
      default: return given(tensor.flatten());
    }
  });
}

Handle pkb_slim_view(Handle t, const int64_t* sizes, size_t n, bool may_copy) {
  return guarded([&] {
    const c10::IntArrayRef shape(sizes, n);
    return given(may_copy ? borrowed(t).reshape(shape) : borrowed(t).view(shape));
  });
}
Handle pkb_slim_narrow(Handle t, int64_t dim, int64_t start, int64_t length) {
  return guarded([&] { return given(borrowed(t).narrow(dim, start, length)); });
}
Handle pkb_slim_select(Handle t, int64_t dim, int64_t index) {
  return guarded([&] { return given(borrowed(t).select(dim, index)); });
}
Handle pkb_slim_transpose(Handle t, int64_t first, int64_t second) {
  return guarded([&] { return given(borrowed(t).transpose(first, second)); });
}
Handle pkb_slim_unsqueeze(Handle t, int64_t dim) {
  return guarded([&] { return given(borrowed(t).unsqueeze(dim)); });
}
Handle pkb_slim_to(Handle t, const pkb_slim::Options* plain) {
  return guarded([&] { return given(borrowed(t).to(options_of(*plain))); });
}
void pkb_slim_copy(Handle target, Handle source, bool non_blocking) {
  guarded([&] { borrowed(target).copy_(borrowed(source), non_blocking); });
}
void pkb_slim_fill(Handle t, double value) {
  guarded([&] { borrowed(t).fill_(value); });
}
void pkb_slim_multiply(Handle t, double value) {
  guarded([&] { borrowed(t).mul_(value); });
}
double pkb_slim_item_double(Handle t) { return guarded([&] { return borrowed(t).item<double>(); }); }
int64_t pkb_slim_item_integer(Handle t) { return guarded([&] { return borrowed(t).item<int64_t>(); }); }

const char* pkb_slim_scalar_name(int type) { return c10::toString(static_cast<c10::ScalarType>(type)); }
const char* pkb_slim_type_meta_name(int type, size_t* length) {
  const auto name = c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(type)).name();  // in a literal of torch's
  *length = name.size();
  return name.data();
}
const char* pkb_slim_device_name(int type) {
  static const std::string names[] = {
      c10::DeviceTypeName(c10::kCPU, true), c10::DeviceTypeName(c10::kCUDA, true), "other"};
  return names[type == 0 || type == 1 ? type : 2].c_str();
}

}  // extern "C"
