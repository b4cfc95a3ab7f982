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
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x, __nv_fp8_interpretation_t k) {
  return {__nv_cvt_fp8_to_halfraw((unsigned char)x, k).x, __nv_cvt_fp8_to_halfraw((unsigned char)(x >> 8), k).x};
}
inline __nv_fp8x2_storage_t __nv_cvt_bfloat16raw2_to_fp8x2(__nv_bfloat162_raw x, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
  return __nv_cvt_float2_to_fp8x2(__bfloat1622float2(__nv_bfloat162(x)), s, k);
}
inline __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw x, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
  return __nv_cvt_float2_to_fp8x2(__half22float2(__half2(x)), s, k);
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
#define EMU_FP8X(two, four, H, kind)                                                                                   \
  struct alignas(2) two {                                                                                              \
    __nv_fp8x2_storage_t __x;                                                                                          \
    two() = default;                                                                                                   \
    explicit two(float2 v) : __x(__nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, kind)) {}                                 \
    explicit two(__half2 v) : two(__half22float2(v)) {}                                                                \
    explicit two(__nv_bfloat162 v) : two(__bfloat1622float2(v)) {}                                                     \
    explicit operator float2() const { return {emu::ptx::H::widen((uint8_t)__x), emu::ptx::H::widen((uint8_t)(__x >> 8))}; } \
    explicit operator __half2() const { return __float22half2_rn((float2)*this); }                                     \
  };                                                                                                                   \
  struct alignas(4) four {                                                                                             \
    __nv_fp8x4_storage_t __x;                                                                                          \
    four() = default;                                                                                                  \
    explicit four(float4 v) : __x(two(float2{v.x, v.y}).__x | (unsigned)two(float2{v.z, v.w}).__x << 16) {}            \
    explicit operator float4() const {                                                                                 \
      auto at = [&](int i) { return emu::ptx::H::widen((uint8_t)(__x >> 8 * i)); };                                    \
      return {at(0), at(1), at(2), at(3)};                                                                             \
    }                                                                                                                  \
  };
EMU_FP8X(__nv_fp8x2_e4m3, __nv_fp8x4_e4m3, E4m3, __NV_E4M3)
EMU_FP8X(__nv_fp8x2_e5m2, __nv_fp8x4_e5m2, E5m2, __NV_E5M2)
#undef EMU_FP8X
