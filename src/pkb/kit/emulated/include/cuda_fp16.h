// fp16, with the arithmetic in float and one rounding, as the hardware has it.
#pragma once
#include "emu.h"

struct alignas(2) __half_raw { unsigned short x; };
struct alignas(4) __half2_raw { unsigned short x, y; };

struct alignas(2) __half {
  uint16_t emu_bits;
  __half() = default;
  constexpr __half(const __half&) = default;
  constexpr __half& operator=(const __half&) = default;
  __half(float x) : emu_bits(emu::ptx::F16::narrow(x)) {}
  __half(double x) : __half((float)x) {}
  __half(int x) : __half((float)x) {}
  __half(unsigned x) : __half((float)x) {}
  __half(long x) : __half((float)x) {}
  __half(unsigned long x) : __half((float)x) {}
  __half(long long x) : __half((float)x) {}
  __half(unsigned long long x) : __half((float)x) {}
  constexpr __half(const __half_raw& raw) : emu_bits(raw.x) {}
  operator __half_raw() const { return {emu_bits}; }
  operator float() const { return emu::ptx::F16::widen(emu_bits); }
};
struct alignas(4) __half2 {
  __half x, y;
  __half2() = default;
  __half2(__half x, __half y) : x(x), y(y) {}
};
#define EMU_OPERATOR(op)                                                                                               \
  inline __half operator op(__half a, __half b) { return __half((float)a op (float)b); }                                   \
  inline __half& operator op##=(__half& a, __half b) { return a = a op b; }                                               \
  inline __half2 operator op(__half2 a, __half2 b) { return {a.x op b.x, a.y op b.y}; }                                   \
  inline __half2& operator op##=(__half2& a, __half2 b) { return a = a op b; }
EMU_OPERATOR(+) EMU_OPERATOR(-) EMU_OPERATOR(*) EMU_OPERATOR(/)
#undef EMU_OPERATOR
#define EMU_OPERATOR(op) inline bool operator op(__half a, __half b) { return (float)a op (float)b; }
EMU_OPERATOR(==) EMU_OPERATOR(!=) EMU_OPERATOR(<) EMU_OPERATOR(>) EMU_OPERATOR(<=) EMU_OPERATOR(>=)
#undef EMU_OPERATOR
inline __half operator-(__half a) { a.emu_bits ^= 0x8000; return a; }
inline __half2 operator-(__half2 a) { return {-a.x, -a.y}; }

#define EMU_BINARY(name, expression)                                                                                   \
  inline __half name(__half a, __half b) { return __half((float)(expression)); }                                           \
  inline __half2 name##2(__half2 a, __half2 b) { return {name(a.x, b.x), name(a.y, b.y)}; }
EMU_BINARY(__hadd, (float)a + (float)b) EMU_BINARY(__hsub, (float)a - (float)b) EMU_BINARY(__hmul, (float)a * (float)b)
EMU_BINARY(__hadd_rn, (float)a + (float)b) EMU_BINARY(__hmul_rn, (float)a * (float)b) EMU_BINARY(__hdiv, (float)a / (float)b)
EMU_BINARY(__hmax, fmaxf(a, b)) EMU_BINARY(__hmin, fminf(a, b))
#undef EMU_BINARY
inline __half2 __h2div(__half2 a, __half2 b) { return a / b; }
inline __half __hfma(__half a, __half b, __half c) { return __half((float)((double)(float)a * (float)b + (float)c)); }
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
inline __half __hneg(__half a) { return -a; }
inline __half2 __hneg2(__half2 a) { return -a; }
inline __half __habs(__half a) { a.emu_bits &= 0x7fff; return a; }
inline __half2 __habs2(__half2 a) { return {__habs(a.x), __habs(a.y)}; }
inline bool __hisnan(__half a) { return (float)a != (float)a; }
inline int __hisinf(__half a) { return isinf((float)a) ? ((float)a < 0 ? -1 : 1) : 0; }
inline bool __heq(__half a, __half b) { return a == b; }
inline bool __hne(__half a, __half b) { return a != b; }
inline bool __hlt(__half a, __half b) { return a < b; }
inline bool __hgt(__half a, __half b) { return a > b; }
inline bool __hle(__half a, __half b) { return a <= b; }
inline bool __hge(__half a, __half b) { return a >= b; }
#define EMU_UNARY(name, function) inline __half name(__half a) { return __half(function((float)a)); }
EMU_UNARY(hexp, expf) EMU_UNARY(hexp2, exp2f) EMU_UNARY(hlog, logf) EMU_UNARY(hlog2, log2f) EMU_UNARY(hsqrt, sqrtf)
EMU_UNARY(hrsqrt, rsqrtf) EMU_UNARY(hsin, sinf) EMU_UNARY(hcos, cosf) EMU_UNARY(hrcp, 1.f /) EMU_UNARY(htanh, tanhf)
EMU_UNARY(hfloor, floorf) EMU_UNARY(hceil, ceilf) EMU_UNARY(hrint, rintf) EMU_UNARY(htrunc, truncf)
#undef EMU_UNARY
inline float __half2float(__half x) { return (float)x; }
inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }
inline __half __double2half(double x) { return __half((float)x); }
inline __half __int2half_rn(int x) { return __half((float)x); }
inline __half __ll2half_rn(long long x) { return __half((float)x); }
inline int __half2int_rn(__half x) { return (int)nearbyintf((float)x); }
inline int __half2int_rz(__half x) { return (int)(float)x; }
inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
inline __half2 __float2half2_rn(float a) { return {__half(a), __half(a)}; }
inline __half2 __float22half2_rn(float2 a) { return {__half(a.x), __half(a.y)}; }
inline float2 __half22float2(__half2 a) { return {(float)a.x, (float)a.y}; }
inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
inline __half2 __half2half2(__half a) { return {a, a}; }
inline __half2 make_half2(__half a, __half b) { return {a, b}; }
inline float __low2float(__half2 a) { return (float)a.x; }
inline float __high2float(__half2 a) { return (float)a.y; }
inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }
inline __half2 __low2half2(__half2 a) { return {a.x, a.x}; }
inline __half2 __high2half2(__half2 a) { return {a.y, a.y}; }
inline __half2 __lowhigh2highlow(__half2 a) { return {a.y, a.x}; }
inline unsigned short __half_as_ushort(__half x) { return x.emu_bits; }
inline short __half_as_short(__half x) { return (short)x.emu_bits; }
inline __half __ushort_as_half(unsigned short x) { return __half(__half_raw{x}); }
inline __half __short_as_half(short x) { return __half(__half_raw{(unsigned short)x}); }
typedef __half half;
typedef __half2 half2;
typedef __half nv_half;
typedef __half2 nv_half2;
