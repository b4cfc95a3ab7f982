// cooperative_groups: the grid, the block, tiles of a warp, and lanes that meet (see __activemask).
#pragma once
#include "emu.h"

namespace cooperative_groups {
struct grid_group {
  void sync() const { emu_sync_grid(); }
  unsigned long long size() const { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z * blockDim.x * blockDim.y * blockDim.z; }
  unsigned long long thread_rank() const {
    const unsigned long long block = blockIdx.x + (unsigned long long)gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    return block * blockDim.x * blockDim.y * blockDim.z + emu_linear_thread();
  }
  unsigned long long num_threads() const { return size(); }
  unsigned block_rank() const { return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z); }
  unsigned num_blocks() const { return gridDim.x * gridDim.y * gridDim.z; }
  dim3 dim_blocks() const { return gridDim; }
  dim3 block_index() const { return blockIdx; }
  bool is_valid() const { return true; }
};
struct thread_block {
  static void sync() { __syncthreads(); }
  static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned num_threads() { return size(); }
  static unsigned thread_rank() { return emu_linear_thread(); }
  static uint3 group_index() { return blockIdx; }
  static uint3 thread_index() { return threadIdx; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};
// Blocks that run at once. What comes between barrier_arrive and barrier_wait is ordered by neither.
struct cluster_group {
  struct arrival_token {};
  static void sync() { emu_cluster_arrive(1), emu_cluster_wait(); }
  static arrival_token barrier_arrive() { return emu_cluster_arrive(1), arrival_token{}; }
  static void barrier_wait() { emu_cluster_wait(); }
  static void barrier_wait(arrival_token&&) { emu_cluster_wait(); }
  static dim3 block_index() { return {blockIdx.x % emu_cluster_dim.x, blockIdx.y % emu_cluster_dim.y, blockIdx.z % emu_cluster_dim.z}; }
  static unsigned block_rank() { return emu::cluster_rank(); }
  static unsigned thread_rank() { return emu::cluster_rank() * thread_block::size() + emu_linear_thread(); }
  static dim3 dim_blocks() { return emu_cluster_dim; }
  static unsigned num_blocks() { return emu::cluster_size(); }
  static unsigned num_threads() { return emu::cluster_size() * thread_block::size(); }
  static unsigned size() { return num_threads(); }
  static unsigned query_shared_rank(const void* p) { return emu_cluster_rank_of(p); }
  template <class T> static T* map_shared_rank(T* p, int rank) { return (T*)emu_mapped((const void*)p, (unsigned)rank); }
};
inline cluster_group this_cluster() { return {}; }
template <unsigned N, class Parent = thread_block>
struct thread_block_tile {
  static_assert(N <= 32 && (N & (N - 1)) == 0);
  static unsigned thread_rank() { return emu_lane() % N; }
  static constexpr unsigned size() { return N; }
  static constexpr unsigned num_threads() { return N; }
  static unsigned meta_group_rank() { return emu_linear_thread() / N; }
  static unsigned meta_group_size() { return (thread_block::size() + N - 1) / N; }
  static unsigned mask() { return (N == 32 ? ~0u : ((1u << N % 32) - 1) << emu_lane() / N * N); }
  void sync() const { emu_sync_warp(mask()); }
  template <class T> T shfl(T x, int lane) const { return __shfl_sync(mask(), x, lane, N); }
  template <class T> T shfl_down(T x, unsigned by) const { return __shfl_down_sync(mask(), x, by, N); }
  template <class T> T shfl_up(T x, unsigned by) const { return __shfl_up_sync(mask(), x, by, N); }
  template <class T> T shfl_xor(T x, int by) const { return __shfl_xor_sync(mask(), x, by, N); }
  int any(int x) const { return __any_sync(mask(), x); }
  int all(int x) const { return __all_sync(mask(), x); }
  unsigned ballot(int x) const { return __ballot_sync(mask(), x) >> emu_lane() / N * N; }
  template <class T> unsigned match_any(T x) const { return __match_any_sync(mask(), x) >> emu_lane() / N * N; }
};
class coalesced_group {
 public:
  explicit coalesced_group(unsigned lanes) : lanes_(lanes) {}
  unsigned size() const { return __popc(lanes_); }
  unsigned num_threads() const { return size(); }
  unsigned thread_rank() const { return __popc(lanes_ & ((1u << emu_lane()) - 1)); }
  void sync() const { emu_sync_warp(lanes_); }
  template <class T> T shfl(T x, unsigned rank) const { return emu::from_lane(lanes_, x, lane(rank)); }
  template <class T> T shfl_down(T x, unsigned by) const {
    return emu::from_lane(lanes_, x, thread_rank() + by < size() ? lane(thread_rank() + by) : emu_lane());
  }
  template <class T> T shfl_up(T x, unsigned by) const {
    return emu::from_lane(lanes_, x, thread_rank() >= by ? lane(thread_rank() - by) : emu_lane());
  }
  int any(int x) const { return __any_sync(lanes_, x); }
  int all(int x) const { return __all_sync(lanes_, x); }
  unsigned mask() const { return lanes_; }

 private:
  unsigned lane(unsigned rank) const {
    unsigned left = lanes_;
    while (rank--) left &= left - 1;
    return __builtin_ctz(left | 1u << 31);
  }
  unsigned lanes_;
};
inline coalesced_group coalesced_threads(EMU_HERE) { return coalesced_group(__activemask(emu_file, emu_line)); }
inline grid_group this_grid() { return {}; }
inline thread_block this_thread_block() { return {}; }
template <unsigned N, class P> inline thread_block_tile<N, P> tiled_partition(const P&) { return {}; }
inline coalesced_group tiled_partition(const thread_block&, unsigned n) {
  return coalesced_group((n == 32 ? ~0u : ((1u << n % 32) - 1) << emu_lane() / n * n));
}
template <class G> inline void sync(const G& group) { group.sync(); }
template <class T> struct plus { T operator()(T a, T b) const { return a + b; } };
template <class T> struct greater { T operator()(T a, T b) const { return a < b ? b : a; } };
template <class T> struct less { T operator()(T a, T b) const { return b < a ? b : a; } };
template <class T> struct bit_and { T operator()(T a, T b) const { return a & b; } };
template <class T> struct bit_or { T operator()(T a, T b) const { return a | b; } };
template <class T> struct bit_xor { T operator()(T a, T b) const { return a ^ b; } };
template <class G, class T, class Op> inline T reduce(const G& group, T x, Op op) { return emu::reduce(group.mask(), x, op); }
template <class G, class F> inline void invoke_one(const G& group, F f) {
  if (group.thread_rank() == 0) f();
}
// Lanes of a group that say the same.
template <class G> inline coalesced_group labeled_partition(const G& group, int label) { return coalesced_group(emu::same_lanes(group.mask(), label)); }
template <class G> inline coalesced_group binary_partition(const G& group, bool label) { return labeled_partition(group, label); }
}  // namespace cooperative_groups
