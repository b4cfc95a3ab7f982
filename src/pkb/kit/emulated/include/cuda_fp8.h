// 8-bit floats: conversions to nearest even, to the largest number what is larger (saturating), as the hardware has them.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  const bool over = kind == __NV_E4M3 ? fabsf(x) > 464.f : fabsf(x) >= 61440.f;
  if (saturate == __NV_NOSAT && over) return (signbit(x) ? 128 : 0) | (kind == __NV_E4M3 ? 127 : 124);
  return kind == __NV_E4M3 ? emu::ptx::E4m3::narrow(x) : emu::ptx::E5m2::narrow(x);
}
inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t s, __nv_fp8_interpretation_t k) { return __nv_cvt_float_to_fp8((float)x, s, k); }
inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw x, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
  return __nv_cvt_float_to_fp8(__bfloat162float(__nv_bfloat16(x)), s, k);
}
inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
  return __nv_cvt_float_to_fp8(__half2float(__half(x)), s, k);
}
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
  return (unsigned short)(__nv_cvt_float_to_fp8(x.x, s, k) | __nv_cvt_float_to_fp8(x.y, s, k) << 8);
}
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t k) {
  return __float2half(k == __NV_E4M3 ? emu::ptx::E4m3::widen(x) : emu::ptx::E5m2::widen(x));
}
#define EMU_FP8(name, H, kind)                                                                                         \
  struct name {                                                                                                        \
    __nv_fp8_storage_t __x;                                                                                            \
    name() = default;                                                                                                  \
    explicit name(float x) : __x(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, kind)) {}                                    \
    explicit name(double x) : name((float)x) {}                                                                        \
    explicit name(int x) : name((float)x) {}                                                                           \
    explicit name(__half x) : name(__half2float(x)) {}                                                                 \
    explicit name(__nv_bfloat16 x) : name(__bfloat162float(x)) {}                                                      \
    explicit operator float() const { return emu::ptx::H::widen(__x); }                                                \
    explicit operator double() const { return emu::ptx::H::widen(__x); }                                               \
    explicit operator __half() const { return __float2half(emu::ptx::H::widen(__x)); }                                       \
    explicit operator __nv_bfloat16() const { return __float2bfloat16(emu::ptx::H::widen(__x)); }                         \
  };
EMU_FP8(__nv_fp8_e4m3, E4m3, __NV_E4M3)
EMU_FP8(__nv_fp8_e5m2, E5m2, __NV_E5M2)
#undef EMU_FP8
