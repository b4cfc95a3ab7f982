// torch's side of an extension: tensors say that they are on a GPU, and new ones are made on the CPU. The slim header's calls
// of the adaptor have been renamed (see recipe.py), and the adaptor itself is the one of a CPU.
#pragma once
#include <cublas_v2.h>
#include <pkb_slim/cuda.h>
#undef pkb_slim_device_type
#undef pkb_slim_device_index
#undef pkb_slim_make
#undef pkb_slim_like
#undef pkb_slim_full
#undef pkb_slim_from_blob
#undef pkb_slim_unary
#undef pkb_slim_to

extern "C" {
PKB_SLIM_HIDDEN pkb_slim::Handle pkb_slim_make(pkb_slim::Fill, const int64_t* sizes, size_t n, const pkb_slim::Options*);
PKB_SLIM_HIDDEN pkb_slim::Handle pkb_slim_like(pkb_slim::Fill, pkb_slim::Handle, const pkb_slim::Options*);
PKB_SLIM_HIDDEN pkb_slim::Handle pkb_slim_full(double, const int64_t* sizes, size_t n, const pkb_slim::Options*);
PKB_SLIM_HIDDEN pkb_slim::Handle pkb_slim_from_blob(void*, const int64_t*, size_t, const int64_t*, const pkb_slim::Options*, void (*)(void*));
PKB_SLIM_HIDDEN pkb_slim::Handle pkb_slim_unary(pkb_slim::Unary, pkb_slim::Handle);
PKB_SLIM_HIDDEN pkb_slim::Handle pkb_slim_to(pkb_slim::Handle, const pkb_slim::Options*);

static pkb_slim::Options emu_on_cpu(const pkb_slim::Options* given) {
  pkb_slim::Options plain = *given;
  if (plain.device_type == 1) plain.device_type = 0, plain.device_index = -1;
  plain.pinned = -1;
  return plain;
}
int emu_slim_device_type(pkb_slim::Handle) { return 1; }
int emu_slim_device_index(pkb_slim::Handle) { return 0; }
pkb_slim::Handle emu_slim_make(pkb_slim::Fill fill, const int64_t* sizes, size_t n, const pkb_slim::Options* o) {
  const auto plain = emu_on_cpu(o);
  return pkb_slim_make(fill, sizes, n, &plain);
}
pkb_slim::Handle emu_slim_like(pkb_slim::Fill fill, pkb_slim::Handle t, const pkb_slim::Options* o) {
  const auto plain = emu_on_cpu(o);
  return pkb_slim_like(fill, t, &plain);
}
pkb_slim::Handle emu_slim_full(double x, const int64_t* sizes, size_t n, const pkb_slim::Options* o) {
  const auto plain = emu_on_cpu(o);
  return pkb_slim_full(x, sizes, n, &plain);
}
pkb_slim::Handle emu_slim_from_blob(void* data, const int64_t* sizes, size_t n, const int64_t* strides, const pkb_slim::Options* o,
                                    void (*drop)(void*)) {
  const auto plain = emu_on_cpu(o);
  return pkb_slim_from_blob(data, sizes, n, strides, &plain, drop);
}
pkb_slim::Handle emu_slim_unary(pkb_slim::Unary what, pkb_slim::Handle t) {
  if (what == pkb_slim::Unary::cuda) return pkb_slim_retain(t), t;
  if (what == pkb_slim::Unary::cpu) return emu_synchronize(), pkb_slim_unary(pkb_slim::Unary::clone, t);
  return pkb_slim_unary(what, t);
}
pkb_slim::Handle emu_slim_to(pkb_slim::Handle t, const pkb_slim::Options* o) {
  const auto plain = emu_on_cpu(o);
  return pkb_slim_to(t, &plain);
}
void emu_slim_cuda_check(int status, const char* file, const char*, unsigned line) {
  throw pkb_slim::Error("CUDA error: " + std::string(cudaGetErrorString((cudaError_t)status)), pkb_slim::ErrorKind::runtime);
}
void* emu_slim_current_stream(int) { return emu_current_stream(); }
int emu_slim_stream_device(int device) { return device < 0 ? 0 : device; }
int emu_slim_exchange_device(int) { return 0; }
void emu_slim_restore_device(int) {}
void* emu_slim_blas_handle() {
  static cublasContext context;
  context.stream = (cudaStream_t)emu_current_stream();
  return &context;
}
}
