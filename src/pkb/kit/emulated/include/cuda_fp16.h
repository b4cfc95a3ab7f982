// fp16, with the arithmetic in float and one rounding, as the hardware has it. Conversions and operators are there unless
// the macros of CUDA's own header forbid them, which torch's builds define.
#pragma once
#include "emu.h"

struct alignas(2) __half_raw { unsigned short x; };
struct alignas(4) __half2_raw { unsigned short x, y; };
struct alignas(2) __half {
  uint16_t emu_bits;
  __half() = default;
  constexpr __half(const __half&) = default;
  constexpr __half& operator=(const __half&) = default;
  constexpr __half(const __half_raw& raw) : emu_bits(raw.x) {}
  operator __half_raw() const { return {emu_bits}; }
#ifndef __CUDA_NO_HALF_CONVERSIONS__
  __half(float x) : emu_bits(emu::ptx::F16::narrow(x)) {}
  __half(double x) : __half((float)x) {}
  __half(int x) : __half((float)x) {}
  __half(unsigned x) : __half((float)x) {}
  __half(long x) : __half((float)x) {}
  __half(unsigned long x) : __half((float)x) {}
  __half(long long x) : __half((float)x) {}
  __half(unsigned long long x) : __half((float)x) {}
  operator float() const { return emu::ptx::F16::widen(emu_bits); }
#endif
};
struct alignas(4) __half2 {
  __half x, y;
  __half2() = default;
  __half2(__half x, __half y) : x(x), y(y) {}
};
inline float __half2float(__half x) { return emu::ptx::F16::widen(x.emu_bits); }
inline __half __float2half(float x) { return __half(__half_raw{emu::ptx::F16::narrow(x)}); }
namespace emu {
inline float f(__half x) { return __half2float(x); }
}
inline __half __hneg(__half a) { a.emu_bits ^= 0x8000; return a; }

#ifndef __CUDA_NO_HALF_OPERATORS__
#define EMU_OPERATOR(op)                                                                                               \
  inline __half operator op(__half a, __half b) { return __float2half(emu::f(a) op emu::f(b)); }                              \
  inline __half& operator op##=(__half& a, __half b) { return a = a op b; }
EMU_OPERATOR(+) EMU_OPERATOR(-) EMU_OPERATOR(*) EMU_OPERATOR(/)
#undef EMU_OPERATOR
#define EMU_OPERATOR(op) inline bool operator op(__half a, __half b) { return emu::f(a) op emu::f(b); }
EMU_OPERATOR(==) EMU_OPERATOR(!=) EMU_OPERATOR(<) EMU_OPERATOR(>) EMU_OPERATOR(<=) EMU_OPERATOR(>=)
#undef EMU_OPERATOR
inline __half operator-(__half a) { return __hneg(a); }
#endif

#define EMU_BINARY(name, expression)                                                                                   \
  inline __half name(__half p, __half q) {                                                                                \
    const float a = emu::f(p), b = emu::f(q);                                                                          \
    return __float2half(expression);                                                                                       \
  }                                                                                                                    \
  inline __half2 name##2(__half2 a, __half2 b) { return {name(a.x, b.x), name(a.y, b.y)}; }
EMU_BINARY(__hadd, a + b) EMU_BINARY(__hsub, a - b) EMU_BINARY(__hmul, a * b)
EMU_BINARY(__hadd_rn, a + b) EMU_BINARY(__hsub_rn, a - b) EMU_BINARY(__hmul_rn, a * b) EMU_BINARY(__hdiv, a / b)
EMU_BINARY(__hmax, fmaxf(a, b)) EMU_BINARY(__hmin, fminf(a, b))
#undef EMU_BINARY
#ifndef __CUDA_NO_HALF2_OPERATORS__
#define EMU_OPERATOR(op, name)                                                                                         \
  inline __half2 operator op(__half2 a, __half2 b) { return name(a, b); }                                                 \
  inline __half2& operator op##=(__half2& a, __half2 b) { return a = name(a, b); }
EMU_OPERATOR(+, __hadd2) EMU_OPERATOR(-, __hsub2) EMU_OPERATOR(*, __hmul2) EMU_OPERATOR(/, __hdiv2)
#undef EMU_OPERATOR
#endif
inline __half2 __h2div(__half2 a, __half2 b) { return __hdiv2(a, b); }
inline __half __hfma(__half a, __half b, __half c) { return __float2half((float)((double)emu::f(a) * emu::f(b) + emu::f(c))); }
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
inline __half2 __hneg2(__half2 a) { return {__hneg(a.x), __hneg(a.y)}; }
inline __half __habs(__half a) { a.emu_bits &= 0x7fff; return a; }
inline __half2 __habs2(__half2 a) { return {__habs(a.x), __habs(a.y)}; }
inline bool __hisnan(__half a) { return emu::f(a) != emu::f(a); }
inline int __hisinf(__half a) { return isinf(emu::f(a)) ? (emu::f(a) < 0 ? -1 : 1) : 0; }
#define EMU_COMPARE(name, op) inline bool name(__half a, __half b) { return emu::f(a) op emu::f(b); }
EMU_COMPARE(__heq, ==) EMU_COMPARE(__hne, !=) EMU_COMPARE(__hlt, <) EMU_COMPARE(__hgt, >) EMU_COMPARE(__hle, <=) EMU_COMPARE(__hge, >=)
#undef EMU_COMPARE
#define EMU_UNARY(name, function) inline __half name(__half a) { return __float2half(function(emu::f(a))); }
EMU_UNARY(hexp, expf) EMU_UNARY(hexp2, exp2f) EMU_UNARY(hlog, logf) EMU_UNARY(hlog2, log2f) EMU_UNARY(hsqrt, sqrtf)
EMU_UNARY(hrsqrt, rsqrtf) EMU_UNARY(hsin, sinf) EMU_UNARY(hcos, cosf) EMU_UNARY(hrcp, 1.f /) EMU_UNARY(htanh, tanhf)
EMU_UNARY(hfloor, floorf) EMU_UNARY(hceil, ceilf) EMU_UNARY(hrint, rintf) EMU_UNARY(htrunc, truncf)
#undef EMU_UNARY
inline __half __float2half_rn(float x) { return __float2half(x); }
inline __half __double2half(double x) { return __float2half((float)x); }
inline __half __int2half_rn(int x) { return __float2half((float)x); }
inline __half __uint2half_rn(unsigned x) { return __float2half((float)x); }
inline __half __ll2half_rn(long long x) { return __float2half((float)x); }
inline int __half2int_rn(__half x) { return (int)nearbyintf(emu::f(x)); }
inline int __half2int_rz(__half x) { return (int)emu::f(x); }
inline __half2 __floats2half2_rn(float a, float b) { return {__float2half(a), __float2half(b)}; }
inline __half2 __float2half2_rn(float a) { return {__float2half(a), __float2half(a)}; }
inline __half2 __float22half2_rn(float2 a) { return {__float2half(a.x), __float2half(a.y)}; }
inline float2 __half22float2(__half2 a) { return {emu::f(a.x), emu::f(a.y)}; }
inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
inline __half2 __half2half2(__half a) { return {a, a}; }
inline __half2 make_half2(__half a, __half b) { return {a, b}; }
inline float __low2float(__half2 a) { return emu::f(a.x); }
inline float __high2float(__half2 a) { return emu::f(a.y); }
inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }
inline __half2 __low2half2(__half2 a) { return {a.x, a.x}; }
inline __half2 __high2half2(__half2 a) { return {a.y, a.y}; }
inline __half2 __lowhigh2highlow(__half2 a) { return {a.y, a.x}; }
inline unsigned short __half_as_ushort(__half x) { return x.emu_bits; }
inline short __half_as_short(__half x) { return (short)x.emu_bits; }
inline __half __ushort_as_half(unsigned short x) { return __half(__half_raw{x}); }
inline __half __short_as_half(short x) { return __half(__half_raw{(unsigned short)x}); }
inline __half atomicAdd(__half* p, __half v) { return emu::update(p, [v](__half old) { return __hadd(old, v); }, "atomicAdd", false); }
inline __half2 atomicAdd(__half2* p, __half2 v) { return emu::update(p, [v](__half2 old) { return __hadd2(old, v); }, "atomicAdd", false); }
typedef __half half;
typedef __half2 half2;
typedef __half nv_half;
typedef __half2 nv_half2;
