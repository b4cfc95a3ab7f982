// nvcuda::wmma. Every lane holds elements of a fragment, as on a GPU, in an order of the emulator's own (CUDA leaves it open):
// element-wise work on fragments is right, and code that guesses the order is not.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda::wmma {
struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
}
template <class T> struct Stored { using type = T; };
template <> struct Stored<precision::tf32> { using type = float; };

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static constexpr int rows = std::is_same_v<Use, matrix_b> ? K : M, columns = std::is_same_v<Use, matrix_a> ? K : N;
  static constexpr int num_elements = rows * columns / 32;
  using element_type = typename Stored<T>::type;
  element_type x[num_elements];
};
// Element i of lane l is number 32 i + l of the tile, row by row.
template <class Use, int M, int N, int K, class T, class L, class S>
inline void fill_fragment(fragment<Use, M, N, K, T, L>& f, S value) {
  for (auto& x : f.x) x = (typename fragment<Use, M, N, K, T, L>::element_type)value;
}
template <class F, class P>
inline void emu_load(F& f, const P* from, unsigned ld, bool by_rows) {
  emu_sync_warp(~0u);
  for (int i = 0; i < F::num_elements; ++i) {
    const int n = 32 * i + (int)emu_lane(), r = n / F::columns, c = n % F::columns;
    f.x[i] = from[by_rows ? r * ld + c : c * ld + r];
  }
  emu_sync_warp(~0u);
}
template <class Use, int M, int N, int K, class T, class L, class P>
inline void load_matrix_sync(fragment<Use, M, N, K, T, L>& f, const P* from, unsigned ld) {
  emu_load(f, from, ld, std::is_same_v<L, row_major>);
}
template <int M, int N, int K, class T, class P>
inline void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const P* from, unsigned ld, layout_t layout) {
  emu_load(f, from, ld, layout == mem_row_major);
}
template <int M, int N, int K, class T, class P>
inline void store_matrix_sync(P* to, const fragment<accumulator, M, N, K, T>& f, unsigned ld, layout_t layout) {
  emu_sync_warp(~0u);
  for (int i = 0; i < f.num_elements; ++i) {
    const int n = 32 * i + (int)emu_lane(), r = n / N, c = n % N;
    to[layout == mem_row_major ? r * ld + c : c * ld + r] = f.x[i];
  }
  emu_sync_warp(~0u);
}
inline float emu_value(float x) { return x; }
inline float emu_value(__half x) { return __half2float(x); }
inline float emu_value(__nv_bfloat16 x) { return __bfloat162float(x); }
inline double emu_value(double x) { return x; }
inline int emu_value(signed char x) { return x; }
inline int emu_value(unsigned char x) { return x; }
template <class C> inline C emu_made(double x) {
  if constexpr (std::is_same_v<C, __half>) return __float2half((float)x);
  else return (C)x;
}
template <int M, int N, int K, class T, class LA, class LB, class C, class D>
inline void mma_sync(fragment<accumulator, M, N, K, D>& d, const fragment<matrix_a, M, N, K, T, LA>& a,
                     const fragment<matrix_b, M, N, K, T, LB>& b, const fragment<accumulator, M, N, K, C>& c) {
  using Wide = decltype(emu_value(a.x[0]));
  // All lanes show their parts, then each computes its own elements. The products are exact in Wide; sums are in order of k.
  Wide* tile = static_cast<Wide*>(emu_shared_static((const void*)"wmma", emu_linear_thread() / 32, sizeof(Wide) * (M + N) * K, 16));
  Wide *left = tile, *right = tile + M * K;
  for (int i = 0; i < a.num_elements; ++i) left[32 * i + emu_lane()] = emu_value(a.x[i]);
  for (int i = 0; i < b.num_elements; ++i) right[32 * i + emu_lane()] = emu_value(b.x[i]);
  emu_sync_warp(~0u);
  D out[M * N / 32];
  for (int i = 0; i < M * N / 32; ++i) {
    const int n = 32 * i + (int)emu_lane(), row = n / N, column = n % N;
    Wide sum = (Wide)emu_value(c.x[i]);
    for (int k = 0; k < K; ++k) sum += left[row * K + k] * right[k * N + column];
    out[i] = emu_made<D>(sum);
  }
  emu_sync_warp(~0u);
  for (int i = 0; i < M * N / 32; ++i) d.x[i] = out[i];
  static constexpr EmuAt at{"wmma::mma_sync", nullptr, 0};
  static bool seen = (emu_used(&at, 1), true);
  (void)seen;
}
inline float __float_to_tf32(float x) { return emu::bits<float>((emu::bits<uint32_t>(x) + 0x1000u) & 0xffffe000u); }
}  // namespace nvcuda::wmma
