// What the adaptor offers to the headers beside this one. The adaptor is compiled once per torch, against torch's own
// headers, and linked into every extension; a tensor is a counted `c10::TensorImpl*` and a Python object a `PyObject*`,
// both without their types. Any of these functions may throw `pkb_slim::Error`.
#pragma once

#include <cstddef>
#include <cstdint>

#include <pkb_slim/error.h>

#define PKB_SLIM_HIDDEN __attribute__((visibility("hidden")))

namespace pkb_slim {

using Handle = void*;
using Object = void*;

struct Options {
  int dtype = -1;  // -1: not said
  int device_type = -1;
  int device_index = -1;
  int requires_grad = -1;
  int pinned = -1;
};

enum class Fill : int { empty, zeros, ones };
enum class Unary : int { contiguous, clone, detach, zero_, cpu, cuda, t, flatten };
enum class Name : int { integer, floating };

// How one C++ function is called: 0 done, 1 the arguments do not fit (the next overload is tried).
using Invoke = int (*)(void* callee, Object* arguments, bool convert, Object* result);

struct Parameter {
  const char* name;  // null: without a name
  const char* type;
  Object default_value;  // null: none; the reference is handed over
};

struct Function {
  const char* name;
  const char* doc;
  const char* result;
  const Parameter* parameters;
  size_t arity;
  Invoke invoke;
  void* callee;
};

using FillModule = void (*)(Object module);

}  // namespace pkb_slim

extern "C" {
// Tensors: lifetime and facts. A null handle is the undefined tensor.
PKB_SLIM_HIDDEN void pkb_slim_retain(pkb_slim::Handle);
PKB_SLIM_HIDDEN void pkb_slim_release(pkb_slim::Handle);
PKB_SLIM_HIDDEN int64_t pkb_slim_numel(pkb_slim::Handle);
PKB_SLIM_HIDDEN int64_t pkb_slim_dim(pkb_slim::Handle);
PKB_SLIM_HIDDEN int64_t pkb_slim_size(pkb_slim::Handle, int64_t dim);
PKB_SLIM_HIDDEN int64_t pkb_slim_stride(pkb_slim::Handle, int64_t dim);
PKB_SLIM_HIDDEN const int64_t* pkb_slim_sizes(pkb_slim::Handle);
PKB_SLIM_HIDDEN const int64_t* pkb_slim_strides(pkb_slim::Handle);
PKB_SLIM_HIDDEN int64_t pkb_slim_storage_offset(pkb_slim::Handle);
PKB_SLIM_HIDDEN size_t pkb_slim_element_size(pkb_slim::Handle);
PKB_SLIM_HIDDEN int pkb_slim_scalar_type(pkb_slim::Handle);
PKB_SLIM_HIDDEN int pkb_slim_device_type(pkb_slim::Handle);
PKB_SLIM_HIDDEN int pkb_slim_device_index(pkb_slim::Handle);
PKB_SLIM_HIDDEN bool pkb_slim_is_contiguous(pkb_slim::Handle);
PKB_SLIM_HIDDEN bool pkb_slim_requires_grad(pkb_slim::Handle);
PKB_SLIM_HIDDEN void* pkb_slim_data(pkb_slim::Handle);

// New tensors; the caller owns what is returned.
PKB_SLIM_HIDDEN pkb_slim::Handle pkb_slim_make(pkb_slim::Fill, const int64_t* sizes, size_t n, const pkb_slim::Options*);
PKB_SLIM_HIDDEN pkb_slim::Handle pkb_slim_like(pkb_slim::Fill, pkb_slim::Handle, const pkb_slim::Options*);
PKB_SLIM_HIDDEN pkb_slim::Handle pkb_slim_full(double, const int64_t* sizes, size_t n, const pkb_slim::Options*);
PKB_SLIM_HIDDEN pkb_slim::Handle pkb_slim_from_blob(
    void* data, const int64_t* sizes, size_t n, const int64_t* strides, const pkb_slim::Options*, void (*drop)(void*));
PKB_SLIM_HIDDEN pkb_slim::Handle pkb_slim_unary(pkb_slim::Unary, pkb_slim::Handle);
PKB_SLIM_HIDDEN pkb_slim::Handle pkb_slim_view(pkb_slim::Handle, const int64_t* sizes, size_t n, bool may_copy);
PKB_SLIM_HIDDEN pkb_slim::Handle pkb_slim_narrow(pkb_slim::Handle, int64_t dim, int64_t start, int64_t length);
PKB_SLIM_HIDDEN pkb_slim::Handle pkb_slim_select(pkb_slim::Handle, int64_t dim, int64_t index);
PKB_SLIM_HIDDEN pkb_slim::Handle pkb_slim_transpose(pkb_slim::Handle, int64_t first, int64_t second);
PKB_SLIM_HIDDEN pkb_slim::Handle pkb_slim_unsqueeze(pkb_slim::Handle, int64_t dim);
PKB_SLIM_HIDDEN pkb_slim::Handle pkb_slim_to(pkb_slim::Handle, const pkb_slim::Options*);
PKB_SLIM_HIDDEN void pkb_slim_copy(pkb_slim::Handle target, pkb_slim::Handle source, bool non_blocking);
PKB_SLIM_HIDDEN void pkb_slim_fill(pkb_slim::Handle, double);
PKB_SLIM_HIDDEN void pkb_slim_multiply(pkb_slim::Handle, double);
PKB_SLIM_HIDDEN double pkb_slim_item_double(pkb_slim::Handle);
PKB_SLIM_HIDDEN int64_t pkb_slim_item_integer(pkb_slim::Handle);

// Texts; they live as long as the process.
PKB_SLIM_HIDDEN const char* pkb_slim_scalar_name(int scalar_type);
PKB_SLIM_HIDDEN const char* pkb_slim_type_meta_name(int scalar_type, size_t* length);
PKB_SLIM_HIDDEN const char* pkb_slim_device_name(int device_type);
PKB_SLIM_HIDDEN const char* pkb_slim_python_name(pkb_slim::Name, bool result);

// Python objects. `load`: whether it fits, as pybind11 decides it. What is returned is a new reference.
PKB_SLIM_HIDDEN bool pkb_slim_load_signed(pkb_slim::Object, bool convert, int64_t* value);
PKB_SLIM_HIDDEN bool pkb_slim_load_unsigned(pkb_slim::Object, bool convert, uint64_t* value);
PKB_SLIM_HIDDEN bool pkb_slim_load_double(pkb_slim::Object, bool convert, double* value);
PKB_SLIM_HIDDEN bool pkb_slim_load_bool(pkb_slim::Object, bool convert, bool* value);
PKB_SLIM_HIDDEN bool pkb_slim_load_text(pkb_slim::Object, const char** text, size_t* length);
PKB_SLIM_HIDDEN bool pkb_slim_load_tensor(pkb_slim::Object, pkb_slim::Handle*);
PKB_SLIM_HIDDEN pkb_slim::Object pkb_slim_load_sequence(pkb_slim::Object, bool convert);  // a tuple, or null
PKB_SLIM_HIDDEN size_t pkb_slim_tuple_length(pkb_slim::Object);
PKB_SLIM_HIDDEN pkb_slim::Object pkb_slim_tuple_item(pkb_slim::Object, size_t);  // borrowed
PKB_SLIM_HIDDEN bool pkb_slim_is_none(pkb_slim::Object);
PKB_SLIM_HIDDEN void pkb_slim_drop(pkb_slim::Object);
PKB_SLIM_HIDDEN pkb_slim::Object pkb_slim_none();
PKB_SLIM_HIDDEN pkb_slim::Object pkb_slim_from_signed(int64_t);
PKB_SLIM_HIDDEN pkb_slim::Object pkb_slim_from_unsigned(uint64_t);
PKB_SLIM_HIDDEN pkb_slim::Object pkb_slim_from_double(double);
PKB_SLIM_HIDDEN pkb_slim::Object pkb_slim_from_bool(bool);
PKB_SLIM_HIDDEN pkb_slim::Object pkb_slim_from_text(const char*, size_t);
PKB_SLIM_HIDDEN pkb_slim::Object pkb_slim_from_tensor(pkb_slim::Handle);
PKB_SLIM_HIDDEN pkb_slim::Object pkb_slim_from_items(pkb_slim::Object* items, size_t n, bool list);  // takes the items

// Modules.
PKB_SLIM_HIDDEN void* pkb_slim_module(const char* name, pkb_slim::FillModule);
PKB_SLIM_HIDDEN void pkb_slim_module_doc(pkb_slim::Object module, const char* text);
PKB_SLIM_HIDDEN void pkb_slim_define(pkb_slim::Object module, const pkb_slim::Function*);

// CUDA; only where torch has it.
PKB_SLIM_HIDDEN void pkb_slim_cuda_check(int status, const char* file, const char* function, unsigned line);
PKB_SLIM_HIDDEN void* pkb_slim_current_stream(int device);
PKB_SLIM_HIDDEN int pkb_slim_stream_device(int device);
PKB_SLIM_HIDDEN int pkb_slim_exchange_device(int device);
PKB_SLIM_HIDDEN void pkb_slim_restore_device(int device);
PKB_SLIM_HIDDEN void* pkb_slim_blas_handle();
}
