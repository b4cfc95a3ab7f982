// bfloat16, with the arithmetic in float and one rounding, as the hardware has it. Conversions and operators are there unless
// the macros of CUDA's own header forbid them, which torch's builds define.
#pragma once
#include "emu.h"

struct alignas(2) __nv_bfloat16_raw { unsigned short x; };
struct alignas(4) __nv_bfloat162_raw { unsigned short x, y; };
struct alignas(2) __nv_bfloat16 {
  uint16_t emu_bits;
  __nv_bfloat16() = default;
  constexpr __nv_bfloat16(const __nv_bfloat16&) = default;
  constexpr __nv_bfloat16& operator=(const __nv_bfloat16&) = default;
  constexpr __nv_bfloat16(const __nv_bfloat16_raw& raw) : emu_bits(raw.x) {}
  operator __nv_bfloat16_raw() const { return {emu_bits}; }
#ifndef __CUDA_NO_BFLOAT16_CONVERSIONS__
  __nv_bfloat16(float x) : emu_bits(emu::ptx::Bf16::narrow(x)) {}
  __nv_bfloat16(double x) : __nv_bfloat16((float)x) {}
  __nv_bfloat16(int x) : __nv_bfloat16((float)x) {}
  __nv_bfloat16(unsigned x) : __nv_bfloat16((float)x) {}
  __nv_bfloat16(long x) : __nv_bfloat16((float)x) {}
  __nv_bfloat16(unsigned long x) : __nv_bfloat16((float)x) {}
  __nv_bfloat16(long long x) : __nv_bfloat16((float)x) {}
  __nv_bfloat16(unsigned long long x) : __nv_bfloat16((float)x) {}
  operator float() const { return emu::ptx::Bf16::widen(emu_bits); }
#endif
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
  __nv_bfloat162() = default;
  __nv_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) : x(x), y(y) {}
};
inline float __bfloat162float(__nv_bfloat16 x) { return emu::ptx::Bf16::widen(x.emu_bits); }
inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(__nv_bfloat16_raw{emu::ptx::Bf16::narrow(x)}); }
namespace emu {
inline float f(__nv_bfloat16 x) { return __bfloat162float(x); }
}
inline __nv_bfloat16 __hneg(__nv_bfloat16 a) { a.emu_bits ^= 0x8000; return a; }

#ifndef __CUDA_NO_BFLOAT16_OPERATORS__
#define EMU_OPERATOR(op)                                                                                               \
  inline __nv_bfloat16 operator op(__nv_bfloat16 a, __nv_bfloat16 b) { return __float2bfloat16(emu::f(a) op emu::f(b)); }                              \
  inline __nv_bfloat16& operator op##=(__nv_bfloat16& a, __nv_bfloat16 b) { return a = a op b; }
EMU_OPERATOR(+) EMU_OPERATOR(-) EMU_OPERATOR(*) EMU_OPERATOR(/)
#undef EMU_OPERATOR
#define EMU_OPERATOR(op) inline bool operator op(__nv_bfloat16 a, __nv_bfloat16 b) { return emu::f(a) op emu::f(b); }
EMU_OPERATOR(==) EMU_OPERATOR(!=) EMU_OPERATOR(<) EMU_OPERATOR(>) EMU_OPERATOR(<=) EMU_OPERATOR(>=)
#undef EMU_OPERATOR
inline __nv_bfloat16 operator-(__nv_bfloat16 a) { return __hneg(a); }
#endif

#define EMU_BINARY(name, expression)                                                                                   \
  inline __nv_bfloat16 name(__nv_bfloat16 p, __nv_bfloat16 q) {                                                                                \
    const float a = emu::f(p), b = emu::f(q);                                                                          \
    return __float2bfloat16(expression);                                                                                       \
  }                                                                                                                    \
  inline __nv_bfloat162 name##2(__nv_bfloat162 a, __nv_bfloat162 b) { return {name(a.x, b.x), name(a.y, b.y)}; }
EMU_BINARY(__hadd, a + b) EMU_BINARY(__hsub, a - b) EMU_BINARY(__hmul, a * b)
EMU_BINARY(__hadd_rn, a + b) EMU_BINARY(__hsub_rn, a - b) EMU_BINARY(__hmul_rn, a * b) EMU_BINARY(__hdiv, a / b)
EMU_BINARY(__hmax, fmaxf(a, b)) EMU_BINARY(__hmin, fminf(a, b))
#undef EMU_BINARY
#ifndef __CUDA_NO_BFLOAT162_OPERATORS__
#define EMU_OPERATOR(op, name)                                                                                         \
  inline __nv_bfloat162 operator op(__nv_bfloat162 a, __nv_bfloat162 b) { return name(a, b); }                                                 \
  inline __nv_bfloat162& operator op##=(__nv_bfloat162& a, __nv_bfloat162 b) { return a = name(a, b); }
EMU_OPERATOR(+, __hadd2) EMU_OPERATOR(-, __hsub2) EMU_OPERATOR(*, __hmul2) EMU_OPERATOR(/, __hdiv2)
#undef EMU_OPERATOR
#endif
inline __nv_bfloat162 __h2div(__nv_bfloat162 a, __nv_bfloat162 b) { return __hdiv2(a, b); }
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) { return __float2bfloat16((float)((double)emu::f(a) * emu::f(b) + emu::f(c))); }
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
inline __nv_bfloat162 __hneg2(__nv_bfloat162 a) { return {__hneg(a.x), __hneg(a.y)}; }
inline __nv_bfloat16 __habs(__nv_bfloat16 a) { a.emu_bits &= 0x7fff; return a; }
inline __nv_bfloat162 __habs2(__nv_bfloat162 a) { return {__habs(a.x), __habs(a.y)}; }
inline bool __hisnan(__nv_bfloat16 a) { return emu::f(a) != emu::f(a); }
inline int __hisinf(__nv_bfloat16 a) { return isinf(emu::f(a)) ? (emu::f(a) < 0 ? -1 : 1) : 0; }
#define EMU_COMPARE(name, op) inline bool name(__nv_bfloat16 a, __nv_bfloat16 b) { return emu::f(a) op emu::f(b); }
EMU_COMPARE(__heq, ==) EMU_COMPARE(__hne, !=) EMU_COMPARE(__hlt, <) EMU_COMPARE(__hgt, >) EMU_COMPARE(__hle, <=) EMU_COMPARE(__hge, >=)
#undef EMU_COMPARE
#define EMU_UNARY(name, function) inline __nv_bfloat16 name(__nv_bfloat16 a) { return __float2bfloat16(function(emu::f(a))); }
EMU_UNARY(hexp, expf) EMU_UNARY(hexp2, exp2f) EMU_UNARY(hlog, logf) EMU_UNARY(hlog2, log2f) EMU_UNARY(hsqrt, sqrtf)
EMU_UNARY(hrsqrt, rsqrtf) EMU_UNARY(hsin, sinf) EMU_UNARY(hcos, cosf) EMU_UNARY(hrcp, 1.f /) EMU_UNARY(htanh, tanhf)
EMU_UNARY(hfloor, floorf) EMU_UNARY(hceil, ceilf) EMU_UNARY(hrint, rintf) EMU_UNARY(htrunc, truncf)
#undef EMU_UNARY
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __float2bfloat16(x); }
inline __nv_bfloat16 __double2bfloat16(double x) { return __float2bfloat16((float)x); }
inline __nv_bfloat16 __int2bfloat16_rn(int x) { return __float2bfloat16((float)x); }
inline __nv_bfloat16 __uint2bfloat16_rn(unsigned x) { return __float2bfloat16((float)x); }
inline __nv_bfloat16 __ll2bfloat16_rn(long long x) { return __float2bfloat16((float)x); }
inline int __bfloat162int_rn(__nv_bfloat16 x) { return (int)nearbyintf(emu::f(x)); }
inline int __bfloat162int_rz(__nv_bfloat16 x) { return (int)emu::f(x); }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {__float2bfloat16(a), __float2bfloat16(b)}; }
inline __nv_bfloat162 __float2bfloat162_rn(float a) { return {__float2bfloat16(a), __float2bfloat16(a)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 a) { return {__float2bfloat16(a.x), __float2bfloat16(a.y)}; }
inline float2 __bfloat1622float2(__nv_bfloat162 a) { return {emu::f(a.x), emu::f(a.y)}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return {a, a}; }
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
inline float __low2float(__nv_bfloat162 a) { return emu::f(a.x); }
inline float __high2float(__nv_bfloat162 a) { return emu::f(a.y); }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) { return a.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) { return a.y; }
inline __nv_bfloat162 __low2bfloat162(__nv_bfloat162 a) { return {a.x, a.x}; }
inline __nv_bfloat162 __high2bfloat162(__nv_bfloat162 a) { return {a.y, a.y}; }
inline __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 a) { return {a.y, a.x}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.emu_bits; }
inline short __bfloat16_as_short(__nv_bfloat16 x) { return (short)x.emu_bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return __nv_bfloat16(__nv_bfloat16_raw{x}); }
inline __nv_bfloat16 __short_as_bfloat16(short x) { return __nv_bfloat16(__nv_bfloat16_raw{(unsigned short)x}); }
inline __nv_bfloat16 atomicAdd(__nv_bfloat16* p, __nv_bfloat16 v) { return emu::update(p, [v](__nv_bfloat16 old) { return __hadd(old, v); }, "atomicAdd", false); }
inline __nv_bfloat162 atomicAdd(__nv_bfloat162* p, __nv_bfloat162 v) { return emu::update(p, [v](__nv_bfloat162 old) { return __hadd2(old, v); }, "atomicAdd", false); }
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
