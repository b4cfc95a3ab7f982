// pkb_fft.cuh: complex transforms of 512 to 16384 values by one block, in shared memory and fp32.
//
// A thread holds 16 values in registers and a transform has three or four passes of radix 16 (the last may be 2, 4 or 8)
// with shared memory between. Forwards it is decimation in frequency, backwards in time: the spectrum stands in the order
// of the passes, which is as good as any for a product of spectra, and nothing is ever reordered. Backwards is forwards on
// conjugates, so there is one code for both ways; the caller scales by 1 / size.
//
// Use: with F = Fft<14>, a block of F::threads threads fills `turns` (F::turns float2 of shared memory) by
// F::prepare(turns) and __syncthreads(), and calls F::run with `data`, F::data float2 of shared memory. All threads must
// be done with `data` (__syncthreads) before they run again.
#pragma once
#include "pkb.cuh"

#define PKB_EACH(i, n) _Pragma("unroll") for (int i = 0; i < n; ++i)

namespace pkb {

// ---------------------------------------------------------------------------------------------------------------------
// Complex numbers

__device__ __forceinline__ float2 add(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
__device__ __forceinline__ float2 sub(float2 a, float2 b) { return make_float2(a.x - b.x, a.y - b.y); }
__device__ __forceinline__ float2 mul(float2 a, float2 b) {
  return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
// exp(-i pi angle)
__device__ __noinline__ float2 root_of_one(float angle) {
  float s, c;
  sincospif(angle, &s, &c);
  return make_float2(c, -s);
}

// ---------------------------------------------------------------------------------------------------------------------
// Sixteen values, in registers

// The transform of R values, which is 2, 4, 8 or 16, in natural order: radix 4 over a, then R / 4 over b, of
// x[R / 4 * a + b].
template <int R>
__device__ __forceinline__ void dft(float2* x) {
  if constexpr (R == 2) {
    const float2 a = x[0];
    x[0] = add(a, x[1]), x[1] = sub(a, x[1]);
  } else if constexpr (R == 4) {
    const float2 a = add(x[0], x[2]), b = sub(x[0], x[2]), c = add(x[1], x[3]), d = sub(x[1], x[3]);
    const float2 e = make_float2(d.y, -d.x);  // -i d
    x[0] = add(a, c), x[1] = add(b, e), x[2] = sub(a, c), x[3] = sub(b, e);
  } else {
    constexpr float C1 = 0.92387953251f, C2 = 0.70710678119f, C3 = 0.38268343236f;
    constexpr float COS[14] = {0.f, C3, C2, C1, 1.f, C1, C2, C3, 0.f, -C3, -C2, -C1, -1.f, -C1};  // 2 pi (k - 4) / 16
    constexpr int B = R / 4;
    float2 t[B][4];
    PKB_EACH(b, B) {
      PKB_EACH(a, 4) t[b][a] = x[B * a + b];
      dft<4>(t[b]);
      PKB_EACH(c, 4) if (b * c) t[b][c] = mul(t[b][c], make_float2(COS[16 / R * b * c + 4], -COS[16 / R * b * c]));
    }
    PKB_EACH(c, 4) {
      float2 y[B];
      PKB_EACH(b, B) y[b] = t[b][c];
      dft<B>(y);
      PKB_EACH(d, B) x[c + 4 * d] = y[d];
    }
  }
}

// x[q] *= u * v^q
__device__ __forceinline__ void twiddle(float2 (&x)[16], float2 u, float2 v) {
  const float2 v2 = mul(v, v), v4 = mul(v2, v2), low[4] = {make_float2(1.f, 0.f), v, v2, mul(v2, v)};
  PKB_EACH(d, 4) {
    PKB_EACH(e, 4) x[4 * d + e] = mul(x[4 * d + e], e ? mul(u, low[e]) : u);
    u = mul(u, v4);
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// The transform of 2^LOG values

template <int LOG>
struct Fft {
  static_assert(LOG >= 9 && LOG <= 14, "no such transform");
  static constexpr int size = 1 << LOG, threads = size / 16;
  static constexpr int data = 17 * threads;             // float2 of shared memory for the values
  static constexpr int turns = threads * 17 / 16 + 8;   // and for prepare
  static constexpr int middle = (LOG - 1) / 4 - 1;      // passes of radix 16 after the first, 1 or 2
  static constexpr int last = 1 << (LOG - 4 * (middle + 1));  // radix of the last pass

  // exp(-2 pi i j / n) for j < n / 16, for n = size, size / 16, size / 256.
  __device__ __forceinline__ static void prepare(float2* table) {
    const int thread = threadIdx.x;
#pragma unroll 1
    for (int n = size, at = 0; n >= 16; at += n / 16, n /= 16)
      if (thread < n / 16) table[at + thread] = root_of_one(2.f * thread / n);
  }

  // From 16 values that stand `threads` apart, x[k] = value[threadIdx.x + k * threads], to 16 of the spectrum, always the
  // same ones; then `use` changes them in x, to go back (to conjugates: give it conjugates), or returns false to stop
  // there. All values of a thread are multiplied by `u`, a thing to weight them with, before and after: 1 if not needed.
  template <class Use>
  __device__ __forceinline__ static void run(float2 (&x)[16], float2* values, const float2* table, float2 u, Use use) {
    float2 *own = values + place(threadIdx.x), *ends = values + place(16 * threadIdx.x);
    dft<16>(x);
    twiddle(x, u, table[threadIdx.x]);
    PKB_EACH(m, 16) tooth<threads>(own, m) = x[m];  // where this thread alone loads, at the end
#pragma unroll 1  // one code for both ways
    for (int p = 0; p < 2 * middle; ++p) {
      if (p == middle) {
        __syncthreads();
        PKB_EACH(m, 16) x[m] = ends[m];
        PKB_EACH(s, 16 / last) dft<last>(x + s * last);
        if (!use()) return;
        PKB_EACH(s, 16 / last) dft<last>(x + s * last);
        PKB_EACH(m, 16) ends[m] = x[m];
      }
      const bool back = p >= middle;
      if (middle == 1 || p == 0 || p == 3) pass<threads / 16>(x, values, table + threads, back);
      else if constexpr (middle == 2) pass<threads / 256>(x, values, table + threads + threads / 16, back);
    }
    __syncthreads();
    PKB_EACH(m, 16) x[m] = tooth<threads>(own, m);
    twiddle(x, u, table[threadIdx.x]);
    dft<16>(x);
  }

 private:
  // Value m of sixteen that stand `gap` apart: one free place after every 16 keeps all passes without bank conflicts. (The
  // gap is a power of two and the first index, modulo 16 gaps, is below one: so the places of all 16 differ by constants.)
  __device__ __forceinline__ static u32 place(u32 index) { return index + index / 16; }
  template <int gap>
  __device__ __forceinline__ static float2& tooth(float2* first, int m) { return first[m * gap + m * gap / 16]; }

  // One pass of radix 16 inside pieces of 16 * gap, in place.
  template <int gap>
  __device__ __forceinline__ static void pass(float2 (&x)[16], float2* values, const float2* table, bool back) {
    const u32 j = threadIdx.x % gap;
    float2* first = values + place(threadIdx.x / gap * (16 * gap) + j);
    __syncthreads();
    PKB_EACH(m, 16) x[m] = tooth<gap>(first, m);
    if (back) twiddle(x, make_float2(1.f, 0.f), table[j]);
    dft<16>(x);
    if (!back) twiddle(x, make_float2(1.f, 0.f), table[j]);
    PKB_EACH(m, 16) tooth<gap>(first, m) = x[m];
  }
};

}  // namespace pkb

#undef PKB_EACH
