// Functions of numbers. Those that round in a way of the GPU's own (__expf, rsqrtf) are the host's: approximate.
#pragma once

inline float __uint_as_float(unsigned u) { return emu::bits<float>(u); }
inline float __int_as_float(int i) { return emu::bits<float>(i); }
inline unsigned __float_as_uint(float f) { return emu::bits<unsigned>(f); }
inline int __float_as_int(float f) { return emu::bits<int>(f); }
inline double __longlong_as_double(long long i) { return emu::bits<double>(i); }
inline long long __double_as_longlong(double d) { return emu::bits<long long>(d); }
inline double __hiloint2double(int hi, int lo) { return emu::bits<double>((uint64_t)(unsigned)hi << 32 | (unsigned)lo); }
inline int __double2loint(double d) { return (int)emu::bits<uint64_t>(d); }
inline int __double2hiint(double d) { return (int)(emu::bits<uint64_t>(d) >> 32); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; ++i) y |= (x >> i & 1) << (31 - i);
  return y;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  const uint64_t all = (uint64_t)b << 32 | a;
  unsigned y = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned pick = s >> 4 * i & 15, byte = (unsigned)(all >> 8 * (pick & 7)) & 255;
    y |= (pick & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
  }
  return y;
}
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) { return (unsigned)(((uint64_t)hi << 32 | lo) << (s & 31) >> 32); }
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s) { return (unsigned)(((uint64_t)hi << 32 | lo) >> (s & 31)); }
inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) c += (int)(signed char)(a >> 8 * i) * (int)(signed char)(b >> 8 * i);
  return c;
}
inline unsigned __vaddus4(unsigned, unsigned) { emu_unsupported("__vaddus4"); }

inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { volatile float c = a + b; return c; }
inline float __fsub_rn(float a, float b) { volatile float c = a - b; return c; }
inline float __fmul_rn(float a, float b) { volatile float c = a * b; return c; }
inline double __dadd_rn(double a, double b) { volatile double c = a + b; return c; }
inline double __dmul_rn(double a, double b) { volatile double c = a * b; return c; }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float __frcp_rn(float a) { return 1.f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frsqrt_rn(float a) { return (float)(1. / sqrt((double)a)); }
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return (float)pow(10., x); }
inline float exp10f(float x) { return (float)pow(10., x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline void __sincosf(float x, float* s, float* c) { *s = sinf(x), *c = cosf(x); }
inline float __saturatef(float x) { return x != x ? 0.f : x < 0.f ? 0.f : x > 1.f ? 1.f : x; }
inline float rsqrtf(float x) { return (float)(1. / sqrt((double)x)); }
inline double rsqrt(double x) { return 1. / sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678f); }
inline float erfinvf(float) { emu_unsupported("erfinvf"); }
inline void sincospif(float x, float* s, float* c) {
  *s = (float)sin(3.14159265358979323846 * x), *c = (float)cos(3.14159265358979323846 * x);
}
inline float sinpif(float x) { return (float)sin(3.14159265358979323846 * x); }
inline float cospif(float x) { return (float)cos(3.14159265358979323846 * x); }
inline float fdividef(float a, float b) { return a / b; }

inline int __float2int_rn(float x) { return (int)nearbyintf(x); }
inline int __float2int_rz(float x) { return (int)x; }
inline int __float2int_rd(float x) { return (int)floorf(x); }
inline int __float2int_ru(float x) { return (int)ceilf(x); }
inline unsigned __float2uint_rn(float x) { return (unsigned)nearbyintf(x); }
inline unsigned __float2uint_rz(float x) { return (unsigned)x; }
inline long long __float2ll_rn(float x) { return (long long)nearbyintf(x); }
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }
inline float __ll2float_rn(long long x) { return (float)x; }
inline float __double2float_rn(double x) { return (float)x; }
inline int __double2int_rn(double x) { return (int)nearbyint(x); }

// CUDA's own overloads, so that what is ambiguous for nvcc is ambiguous here.
#define EMU_MINMAX(A, B, R)                                                                                            \
  inline R min(A a, B b) { return (R)b < (R)a ? (R)b : (R)a; }                                                         \
  inline R max(A a, B b) { return (R)a < (R)b ? (R)b : (R)a; }
EMU_MINMAX(int, int, int) EMU_MINMAX(unsigned, unsigned, unsigned) EMU_MINMAX(int, unsigned, unsigned) EMU_MINMAX(unsigned, int, unsigned)
EMU_MINMAX(long, long, long) EMU_MINMAX(unsigned long, unsigned long, unsigned long)
EMU_MINMAX(long, unsigned long, unsigned long) EMU_MINMAX(unsigned long, long, unsigned long)
EMU_MINMAX(long long, long long, long long) EMU_MINMAX(unsigned long long, unsigned long long, unsigned long long)
EMU_MINMAX(long long, unsigned long long, unsigned long long) EMU_MINMAX(unsigned long long, long long, unsigned long long)
#undef EMU_MINMAX
#define EMU_MINMAX(A, B, R)                                                                                            \
  inline R min(A a, B b) { return fmin((R)a, (R)b); }                                                                  \
  inline R max(A a, B b) { return fmax((R)a, (R)b); }
EMU_MINMAX(float, float, float) EMU_MINMAX(double, double, double) EMU_MINMAX(float, double, double) EMU_MINMAX(double, float, double)
#undef EMU_MINMAX

inline size_t __cvta_generic_to_shared(const void* p) { return static_cast<const char*>(p) - emu_shared_arena; }
inline size_t __cvta_generic_to_global(const void* p) { return (size_t)p; }
inline void* __cvta_shared_to_generic(size_t p) { return emu_shared_arena + p; }
