// CUDA for g++: what kernels and the kit's headers use of the language, on top of runtime.cpp. Everything else is the real
// text. Inline assembly has been replaced, instruction by instruction, by calls of the functions at the end (see ptx.py).
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __CUDA_ARCH__ 900
#define __device__
#define __host__
#define __global__ EMU_KERNEL
#define __shared__ EMU_SHARED
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// ---------------------------------------------------------------------------------------------------------------------
// What runtime.cpp gives

struct EmuDim { unsigned x, y, z; };
struct EmuWords { uint64_t word[2]; };  // what a lane shows to the others of its warp
extern "C" {
extern __thread EmuDim emu_thread, emu_block, emu_block_dim, emu_grid_dim;
void emu_poll();                // a look at memory that others change: they run in between
void emu_sync();                // __syncthreads
void emu_sync_warp();           // all live lanes of the warp
char* emu_shared();             // dynamic shared memory of this block
EmuWords* emu_warp();           // of all lanes of this warp
unsigned emu_lane();
void emu_copy_later(void* to, const void* from, unsigned bytes);  // done by emu_copies_done only
void emu_copies_close();
void emu_copies_done(unsigned but);
char* emu_multicast(unsigned member, uint64_t address);  // null past the last member
uint64_t emu_now_ns();
[[noreturn]] void emu_fault(const char* what, const void* address);
int dprintf(int, const char*, ...);
void emu_launch(void (*body)(void*), void* argument, const unsigned* grid, const unsigned* block, unsigned shared,
                unsigned resident);
}
#define threadIdx emu_thread
#define blockIdx emu_block
#define blockDim emu_block_dim
#define gridDim emu_grid_dim

namespace emu {
template <size_t...> struct Indices {};
template <class... A, size_t... I>
void call(void (*kernel)(A...), void** arguments, Indices<I...>) {
  kernel(*static_cast<A*>(arguments[I])...);
}
template <class... A>
void launch(void (*kernel)(A...), const unsigned* grid, const unsigned* block, unsigned shared, unsigned resident,
            void** arguments) {
  struct Pack { void (*kernel)(A...); void** arguments; } pack{kernel, arguments};
  auto body = [](void* p) {
    auto* k = static_cast<Pack*>(p);
    call(k->kernel, k->arguments, Indices<__integer_pack(sizeof...(A))...>{});
  };
  emu_launch(body, &pack, grid, block, shared, resident);
}
template <class... A>
int sizes(void (*)(A...), int* out) {
  const int all[] = {(int)sizeof(A)..., 0};
  memcpy(out, all, sizeof all);
  return sizeof...(A);
}
template <class T>
inline T from_lane(T x, unsigned lane) {
  static_assert(sizeof x <= 8);
  memcpy(&emu_warp()[emu_lane()], &x, sizeof x);
  emu_sync_warp();
  T y;
  memcpy(&y, &emu_warp()[lane & 31], sizeof y);
  emu_sync_warp();
  return y;
}
template <class To, class From>
inline To bits(From x) { static_assert(sizeof(To) == sizeof(From)); To y; memcpy(&y, &x, sizeof y); return y; }
}  // namespace emu

// ---------------------------------------------------------------------------------------------------------------------
// CUDA's functions

inline void __syncthreads() { emu_sync(); }
#define printf(...) dprintf(2, __VA_ARGS__)
[[noreturn]] inline void __trap() { emu_fault("the kernel stopped itself", nullptr); }
inline void __syncwarp(unsigned = ~0u) { emu_sync_warp(); }
template <class T> inline T __shfl_sync(unsigned, T x, int lane) { return emu::from_lane(x, lane); }
template <class T> inline T __shfl_xor_sync(unsigned, T x, int mask) { return emu::from_lane(x, emu_lane() ^ mask); }
template <class T> inline T __shfl_down_sync(unsigned, T x, int by) {
  return emu::from_lane(x, emu_lane() + by < 32 ? emu_lane() + by : emu_lane());
}
template <class T> inline T __shfl_up_sync(unsigned, T x, int by) {
  return emu::from_lane(x, (int)emu_lane() >= by ? emu_lane() - by : emu_lane());
}
template <class T> inline T __reduce_add_sync(unsigned mask, T x) {
  for (int by = 16; by; by /= 2) x += __shfl_xor_sync(mask, x, by);
  return x;
}
template <class T> inline T __reduce_max_sync(unsigned mask, T x) {
  for (int by = 16; by; by /= 2) { const T y = __shfl_xor_sync(mask, x, by); if (y > x) x = y; }
  return x;
}
inline unsigned __ballot_sync(unsigned mask, int x) { return __reduce_add_sync(mask, x ? 1u << emu_lane() : 0u); }
inline int __any_sync(unsigned mask, int x) { return __ballot_sync(mask, x) != 0; }
template <class T> inline T atomicAdd(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
inline float __uint_as_float(unsigned u) { return emu::bits<float>(u); }
inline float __int_as_float(int i) { return emu::bits<float>(i); }
inline unsigned __float_as_uint(float f) { return emu::bits<unsigned>(f); }
inline int __float_as_int(float f) { return emu::bits<int>(f); }
inline double __hiloint2double(int hi, int lo) { return emu::bits<double>((uint64_t)(unsigned)hi << 32 | (unsigned)lo); }
inline int __double2loint(double d) { return (int)emu::bits<uint64_t>(d); }
inline int __double2hiint(double d) { return (int)(emu::bits<uint64_t>(d) >> 32); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline float __fdiv_rn(float a, float b) { return a / b; }
// By hand: <math.h> is 16000 lines in C++, and has names that CUDA has too.
#define EMU_MATH(name)                                                        \
  inline double name(double x) { return __builtin_##name(x); }                \
  inline float name(float x) { return __builtin_##name##f(x); }               \
  inline float name##f(float x) { return __builtin_##name##f(x); }
EMU_MATH(exp) EMU_MATH(exp2) EMU_MATH(log) EMU_MATH(log2) EMU_MATH(sqrt) EMU_MATH(floor) EMU_MATH(ceil) EMU_MATH(fabs)
EMU_MATH(sin) EMU_MATH(cos) EMU_MATH(tanh) EMU_MATH(erf)
#define EMU_MATH2(name)                                                                    \
  inline double name(double x, double y) { return __builtin_##name(x, y); }                \
  inline float name##f(float x, float y) { return __builtin_##name##f(x, y); }
EMU_MATH2(fmax) EMU_MATH2(fmin) EMU_MATH2(fmod) EMU_MATH2(pow)
inline float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1.f / sqrtf(x); }
inline double rsqrt(double x) { return 1. / sqrt(x); }
inline void sincospif(float x, float* s, float* c) {
  *s = (float)sin(3.14159265358979323846 * x), *c = (float)cos(3.14159265358979323846 * x);
}
template <class T> inline T min(T a, T b) { return b < a ? b : a; }
template <class T> inline T max(T a, T b) { return a < b ? b : a; }
inline size_t __cvta_generic_to_shared(const void* p) { return static_cast<const char*>(p) - emu_shared(); }

// ---------------------------------------------------------------------------------------------------------------------
// Instructions

namespace emu {
inline void aligned(const void* p) { if ((uintptr_t)p & 15) emu_fault("16 bytes at an address that is not aligned", p); }
inline unsigned load(const void* p) {
  emu_poll();
  return __atomic_load_n(static_cast<const unsigned*>(p), __ATOMIC_SEQ_CST);
}
inline void store(void* p, unsigned v) { __atomic_store_n(static_cast<unsigned*>(p), v, __ATOMIC_SEQ_CST); }
inline unsigned add(void* p, unsigned v) { return __atomic_fetch_add(static_cast<unsigned*>(p), v, __ATOMIC_SEQ_CST); }
inline unsigned cas(void* p, unsigned expect, unsigned v) {
  emu_poll();
  __atomic_compare_exchange_n(static_cast<unsigned*>(p), &expect, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expect;
}
inline void load16(unsigned& x, unsigned& y, unsigned& z, unsigned& w, const void* p) {
  aligned(p);
  const uint4 v = *static_cast<const uint4*>(p);
  x = v.x, y = v.y, z = v.z, w = v.w;
}
inline void store16(void* p, unsigned x, unsigned y, unsigned z, unsigned w) {
  aligned(p);
  *static_cast<uint4*>(p) = uint4{x, y, z, w};
}
inline void prefetch(const void* p, unsigned bytes) {  // touches the ends: what is not there faults
  if (((uintptr_t)p | bytes) & 15) emu_fault("a prefetch that is not aligned", p);
  volatile char c = *static_cast<const char*>(p) + static_cast<const char*>(p)[bytes - 1];
  (void)c;
}

// Numbers of 16 bits, two in a word.
struct Bf16 {
  static float widen(uint16_t h) { return bits<float>((uint32_t)h << 16); }
  static uint16_t narrow(float f) {
    const uint32_t u = bits<uint32_t>(f);
    return f != f ? 0x7fff : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
  }
};
struct F16 {
  static float widen(uint16_t h) { return (float)bits<_Float16>(h); }
  static uint16_t narrow(float f) { return bits<uint16_t>((_Float16)f); }
};
template <class H> inline float half(unsigned word, unsigned high) { return H::widen((uint16_t)(high ? word >> 16 : word)); }
template <class H> inline unsigned pair(float high, float low) { return H::narrow(low) | (unsigned)H::narrow(high) << 16; }
template <class H> inline unsigned fma2(unsigned a, unsigned b, unsigned c) {  // exact in double, then rounded (twice)
  auto one = [&](int h) { return (float)((double)half<H>(a, h) * half<H>(b, h) + half<H>(c, h)); };
  return pair<H>(one(1), one(0));
}
template <class H> inline unsigned max2(unsigned a, unsigned b) {  // a NaN loses, as in PTX
  auto one = [&](int h) { return fmaxf(half<H>(a, h), half<H>(b, h)); };
  return pair<H>(one(1), one(0));
}

// Four 8 x 8 matrices of 16-bit numbers; lane l has the address of row l % 8 of matrix l / 8.
inline void ldmatrix(unsigned& r0, unsigned& r1, unsigned& r2, unsigned& r3, unsigned place, bool trans) {
  const char* p = emu_shared() + place;
  aligned(p);
  const unsigned lane = emu_lane();
  emu_warp()[lane].word[0] = (uint64_t)p;
  emu_sync_warp();
  unsigned r[4];
  for (unsigned m = 0; m < 4; ++m) {
    uint16_t two[2];
    for (unsigned e = 0; e < 2; ++e) {
      const unsigned row = trans ? 2 * (lane % 4) + e : lane / 4, col = trans ? lane / 4 : 2 * (lane % 4) + e;
      memcpy(&two[e], (const char*)emu_warp()[8 * m + row].word[0] + 2 * col, 2);
    }
    r[m] = two[0] | (unsigned)two[1] << 16;
  }
  emu_sync_warp();
  r0 = r[0], r1 = r[1], r2 = r[2], r3 = r[3];
}
// c += a (16 x 16) b (16 x 8) with PTX's layout of fragments. Words of all lanes are shown in two rounds.
template <class H>
inline void mma(float& c0, float& c1, float& c2, float& c3, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                unsigned b0, unsigned b1) {
  const unsigned lane = emu_lane();
  float b[2][16], a[2][16];
  EmuWords* all = emu_warp();
  all[lane] = {{a0 | (uint64_t)a1 << 32, a2 | (uint64_t)a3 << 32}};
  emu_sync_warp();
  for (unsigned i = 0; i < 2; ++i)  // rows lane / 4 and 8 more
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned word = (unsigned)(all[lane / 4 * 4 + k % 8 / 2].word[k / 8] >> 32 * i);
      a[i][k] = half<H>(word, k % 2);
    }
  emu_sync_warp();
  all[lane].word[0] = b0 | (uint64_t)b1 << 32;
  emu_sync_warp();
  for (unsigned j = 0; j < 2; ++j)  // columns 2 (lane % 4) and 1 more
    for (unsigned k = 0; k < 16; ++k)
      b[j][k] = half<H>((unsigned)(all[(lane % 4 * 2 + j) * 4 + k % 8 / 2].word[0] >> 32 * (k / 8)), k % 2);
  emu_sync_warp();
  float* c[4] = {&c0, &c1, &c2, &c3};
  for (unsigned i = 0; i < 4; ++i)
    for (unsigned k = 0; k < 16; ++k) *c[i] += a[i / 2][k] * b[i % 2][k];
}

// The switch: a multicast address stands for the same place of all ranks.
template <class H>
inline void multicast_sum(unsigned& x, unsigned& y, unsigned& z, unsigned& w, const void* p) {
  float sum[8] = {};
  unsigned v[4];
  for (unsigned k = 0; const char* q = emu_multicast(k, (uint64_t)p); ++k) {
    load16(v[0], v[1], v[2], v[3], q);
    for (int i = 0; i < 8; ++i)
      if constexpr (sizeof(H) == 4) { if (i < 4) sum[i] += __uint_as_float(v[i]); }
      else sum[i] += half<H>(v[i / 2], i % 2);
  }
  for (int i = 0; i < 4; ++i)
    if constexpr (sizeof(H) == 4) v[i] = __float_as_uint(sum[i]);
    else v[i] = pair<H>(sum[2 * i + 1], sum[2 * i]);
  x = v[0], y = v[1], z = v[2], w = v[3];
}
inline void multicast_store(void* p, unsigned x, unsigned y, unsigned z, unsigned w) {
  for (unsigned k = 0; char* q = emu_multicast(k, (uint64_t)p); ++k) store16(q, x, y, z, w);
}
inline void multicast_add(void* p, unsigned v) {
  for (unsigned k = 0; char* q = emu_multicast(k, (uint64_t)p); ++k) add(q, v);
}
}  // namespace emu
