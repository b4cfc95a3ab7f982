// What candidates take of cub, as CUDA 13 has it: blocks and warps by shared memory and barriers (storage that is used again
// without a barrier is overwritten, as on a GPU), whole arrays as one operation of a stream. The order of sums is not cub's.
#pragma once
#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "../cuda_runtime_api.h"
#include "../emu_later.h"

namespace cub {
enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };
namespace emu_parts {
struct Plus { template <class T> T operator()(const T& a, const T& b) const { return a + b; } };
inline unsigned lanes(unsigned width) {  // of the logical warp of this thread, as far as the block has threads
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z, first = emu_linear_thread() / 32 * 32;
  const unsigned there = threads - first >= 32 ? ~0u : (1u << (threads - first)) - 1;
  return (width == 32 ? ~0u : ((1u << width % 32) - 1) << emu_lane() / width * width) & there;
}
}  // namespace emu_parts

template <class T, int X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1, int = 0>
class BlockReduce {
 public:
  struct TempStorage { T items[X * Y * Z]; };
  BlockReduce() : place_(own()) {}
  BlockReduce(TempStorage& place) : place_(place) {}
  // The result is thread 0's; what others get is their own item.
  template <class Op> T Reduce(T x, Op op, int valid) {
    static constexpr EmuAt at{"cub::BlockReduce", __FILE__, __LINE__};
    static bool seen = (emu_used(&at, 1), true);
    (void)seen;
    const int me = (int)emu_linear_thread();
    place_.items[me] = x;
    __syncthreads();
    if (me == 0)
      for (int i = 1; i < valid && i < X * Y * Z; ++i) x = op(x, place_.items[i]);
    return x;
  }
  template <class Op> T Reduce(T x, Op op) { return Reduce(x, op, X * Y * Z); }
  template <int N, class Op> T Reduce(T (&x)[N], Op op) {
    T sum = x[0];
    for (int i = 1; i < N; ++i) sum = op(sum, x[i]);
    return Reduce(sum, op);
  }
  T Sum(T x) { return Reduce(x, emu_parts::Plus()); }
  T Sum(T x, int valid) { return Reduce(x, emu_parts::Plus(), valid); }
  template <int N> T Sum(T (&x)[N]) { return Reduce(x, emu_parts::Plus()); }

 private:
  static TempStorage& own() {
    return *static_cast<TempStorage*>(emu_shared_static(__PRETTY_FUNCTION__, 0, sizeof(TempStorage), alignof(TempStorage)));
  }
  TempStorage& place_;
};

template <class T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1, int = 0>
class BlockScan {
 public:
  struct TempStorage { T items[X * Y * Z]; };
  BlockScan() : place_(own()) {}
  BlockScan(TempStorage& place) : place_(place) {}
  template <class Op> void InclusiveScan(T x, T& out, Op op) { T all; InclusiveScan(x, out, op, all); }
  template <class Op> void InclusiveScan(T x, T& out, Op op, T& all) {
    scan(x, op);
    out = place_.items[emu_linear_thread()], all = place_.items[X * Y * Z - 1];
  }
  template <class Op> void ExclusiveScan(T x, T& out, T initial, Op op) { T all; ExclusiveScan(x, out, initial, op, all); }
  template <class Op> void ExclusiveScan(T x, T& out, T initial, Op op, T& all) {  // `all` is without the initial value
    scan(x, op);
    const unsigned me = emu_linear_thread();
    out = me ? op(initial, place_.items[me - 1]) : initial, all = place_.items[X * Y * Z - 1];
  }
  void InclusiveSum(T x, T& out) { InclusiveScan(x, out, emu_parts::Plus()); }
  void InclusiveSum(T x, T& out, T& all) { InclusiveScan(x, out, emu_parts::Plus(), all); }
  void ExclusiveSum(T x, T& out) { ExclusiveScan(x, out, T{}, emu_parts::Plus()); }
  void ExclusiveSum(T x, T& out, T& all) { ExclusiveScan(x, out, T{}, emu_parts::Plus(), all); }
  template <int N> void InclusiveSum(T (&x)[N], T (&out)[N]) { T all; InclusiveSum(x, out, all); }
  template <int N> void InclusiveSum(T (&x)[N], T (&out)[N], T& all) {
    T sum = running(x, all);
    for (int i = 0; i < N; ++i) out[i] = sum = sum + x[i];
  }
  template <int N> void ExclusiveSum(T (&x)[N], T (&out)[N]) { T all; ExclusiveSum(x, out, all); }
  template <int N> void ExclusiveSum(T (&x)[N], T (&out)[N], T& all) {
    T sum = running(x, all);
    for (int i = 0; i < N; ++i) { const T next = sum + x[i]; out[i] = sum, sum = next; }
  }

 private:
  template <class Op> void scan(T x, Op op) {
    static constexpr EmuAt at{"cub::BlockScan", __FILE__, __LINE__};
    static bool seen = (emu_used(&at, 1), true);
    (void)seen;
    place_.items[emu_linear_thread()] = x;
    __syncthreads();
    if (emu_linear_thread() == 0)
      for (int i = 1; i < X * Y * Z; ++i) place_.items[i] = op(place_.items[i - 1], place_.items[i]);
    __syncthreads();
  }
  template <int N> T running(T (&x)[N], T& all) {  // the sum before this thread's items
    T sum{}, before;
    for (int i = 0; i < N; ++i) sum = sum + x[i];
    ExclusiveSum(sum, before, all);
    return before;
  }
  static TempStorage& own() {
    return *static_cast<TempStorage*>(emu_shared_static(__PRETTY_FUNCTION__, 0, sizeof(TempStorage), alignof(TempStorage)));
  }
  TempStorage& place_;
};

template <class T, int WIDTH = 32>
class WarpReduce {
 public:
  struct TempStorage { char none; };
  WarpReduce(TempStorage&) {}
  template <class Op> T Reduce(T x, Op op) {
    static constexpr EmuAt at{"cub::WarpReduce", __FILE__, __LINE__};
    static bool seen = (emu_used(&at, 1), true);
    (void)seen;
    const T sum = emu::reduce(emu_parts::lanes(WIDTH), x, op);
    return emu_lane() % WIDTH ? x : sum;
  }
  T Sum(T x) { return Reduce(x, emu_parts::Plus()); }
};

template <class T, int WIDTH = 32>
class WarpScan {
 public:
  struct TempStorage { char none; };
  WarpScan(TempStorage&) {}
  void InclusiveSum(T x, T& out) {
    static constexpr EmuAt at{"cub::WarpScan", __FILE__, __LINE__};
    static bool seen = (emu_used(&at, 1), true);
    (void)seen;
    const unsigned mask = emu_parts::lanes(WIDTH), first = emu_lane() / WIDTH * WIDTH;
    for (int by = 1; by < WIDTH; by *= 2) {
      const unsigned from = emu_lane() >= first + by ? emu_lane() - by : emu_lane();
      const T other = emu::from_lane(mask, x, from);
      if (from != emu_lane()) x = other + x;
    }
    out = x;
  }
  void ExclusiveSum(T x, T& out) {
    T sum;
    InclusiveSum(x, sum);
    const unsigned mask = emu_parts::lanes(WIDTH), from = emu_lane() % WIDTH ? emu_lane() - 1 : emu_lane();
    sum = emu::from_lane(mask, sum, from);
    out = emu_lane() % WIDTH ? sum : T{};
  }
};
}  // namespace cub

#include "emu_device.h"
