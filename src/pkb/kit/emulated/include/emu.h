// CUDA for g++: the language, and what kernels call, on top of runtime.cpp. Inline assembly has been replaced, instruction by
// instruction, by calls of the functions in emu_ptx.h (see ptx.py), launches and shared memory by those here (see rewrite.py).
#pragma once
#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <utility>

// The candidate's own text has lost these (see rewrite.py); headers that are not its own may hold them.
#define __device__
#define __host__
#define __global__
#define __forceinline__ inline

// ---------------------------------------------------------------------------------------------------------------------
// Vectors

#define EMU_VECTORS(T, N, A1, A2, A4)                                                                                  \
  struct alignas(A1) N##1 { T x; };                                                                                    \
  struct alignas(A2) N##2 { T x, y; };                                                                                 \
  struct N##3 { T x, y, z; };                                                                                          \
  struct alignas(A4) N##4 { T x, y, z, w; };                                                                           \
  inline N##1 make_##N##1(T x) { return {x}; }                                                                         \
  inline N##2 make_##N##2(T x, T y) { return {x, y}; }                                                                 \
  inline N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; }                                                         \
  inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMU_VECTORS(signed char, char, 1, 2, 4)
EMU_VECTORS(unsigned char, uchar, 1, 2, 4)
EMU_VECTORS(short, short, 2, 4, 8)
EMU_VECTORS(unsigned short, ushort, 2, 4, 8)
EMU_VECTORS(int, int, 4, 8, 16)
EMU_VECTORS(unsigned, uint, 4, 8, 16)
EMU_VECTORS(long, long, 8, 16, 16)
EMU_VECTORS(unsigned long, ulong, 8, 16, 16)
EMU_VECTORS(long long, longlong, 8, 16, 16)
EMU_VECTORS(unsigned long long, ulonglong, 8, 16, 16)
EMU_VECTORS(float, float, 4, 8, 16)
EMU_VECTORS(double, double, 8, 16, 16)
#undef EMU_VECTORS
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

// ---------------------------------------------------------------------------------------------------------------------
// What runtime.cpp gives

struct EmuWords { uint64_t word[2]; };  // what a lane shows to the others of its warp
struct EmuAt { const char* what; const char* file; int line; };  // an instruction in the candidate's text
extern "C" {
extern uint3 emu_thread, emu_block;
extern uint3 emu_block_dim, emu_grid_dim, emu_cluster_dim;
extern char* emu_shared_arena;  // shared memory of all blocks: an address of the shared window is an offset in it
void emu_set_word(const void* address, const EmuAt* at);  // a word of 4 or 8 bytes that others may wait for has been written
void emu_poll(const void* address, unsigned bytes, const EmuAt* at);  // a look at memory that others change: they run before it
void emu_yield();
void emu_sleep(unsigned ns);
void emu_sync_named(unsigned barrier, unsigned threads);  // 0 threads: all of the block
void emu_arrive_named(unsigned barrier, unsigned threads);
void emu_sync_warp(unsigned mask);
void emu_meet_warp(unsigned mask);                         // without ordering memory, as a shuffle
void emu_sync_grid();
char* emu_shared();                                        // dynamic shared memory of this block
void* emu_shared_static(const void* function, unsigned number, size_t bytes, size_t align);
EmuWords* emu_warp();                                      // of all lanes of this warp
unsigned emu_lane();
unsigned emu_linear_thread();
void emu_copy_later(void* to, const void* from, unsigned bytes, unsigned zeros, const EmuAt* at);  // null: the caller's line; done when it is waited for
void emu_copies_close();
void emu_copies_done(unsigned but);
void emu_copies_arrive(void* mbarrier, int one_more);       // when all that this thread has begun are done
unsigned emu_active_mask(int line);
void emu_mbarrier_init(void* p, unsigned count);
uint64_t emu_mbarrier_arrive(void* p, unsigned arrivals, int bytes);
int emu_mbarrier_over(void* p, unsigned parity);
unsigned emu_mbarrier_phase(const void* p);                // the parity of the one that has not ended
void emu_bulk_load(void* to, const void* from, unsigned bytes, void* barrier);
void emu_bulk_store(void* to, const void* from, unsigned bytes, const EmuAt* at);
void emu_bulk_close();
void emu_bulk_done(unsigned but, int read);
char* emu_multicast(unsigned member, uint64_t address);    // null past the last member
uint64_t emu_now_ns();
extern volatile int emu_recording_now;
void emu_access_begin(const void* address, unsigned bytes, int way, const EmuAt* at);
void emu_access_end(int way);
void emu_fence(const EmuAt* at);
void emu_record_access(uint64_t address, uint64_t bytes, int is_write, uint32_t site);
void emu_used(const EmuAt* at, int how);  // for the record of what was executed: 0 exact, 1 approximate, 2 order not modelled
[[noreturn]] void emu_fault(const char* what, const void* address);
[[noreturn]] void emu_unsupported(const char* what);
[[noreturn]] void emu_unsupported_at(const char* what, const char* file, int line);
void emu_enqueue(const char* name, const unsigned* grid, const unsigned* block, const unsigned* cluster, unsigned shared, void* stream,
                 int how, void (*body)(void*), void* argument, void (*free)(void*));  // 1: cooperative, 2: it may begin early
void emu_wait_for_grids();                                 // those before it in its stream, if it has begun early
void emu_cluster_arrive(int releases);
void emu_cluster_wait();
char* emu_mapped(const void* shared, unsigned rank);       // the same place of another block of the cluster
unsigned emu_cluster_rank_of(const void* shared);
void* emu_current_stream();
void emu_set_error(int);
}
#define threadIdx emu_thread
#define blockIdx emu_block
#define blockDim emu_block_dim
#define gridDim emu_grid_dim
constexpr int warpSize = 32;

// The recorder of races (runtime/record.cpp) sees plain accesses of C++ through -fsanitize=thread. A function that makes an access
// which is an instruction of its own is EMU_UNSEEN by that, and says EMU_ACCESS before it, in the same scope: `way` is 0 for a read,
// 1 for a write, 2 for both; `at` is an EmuAt, whose name holds strength and scope as the candidate wrote them. A fence says
// EMU_FENCE, a barrier is recorded by the runtime. EMU_HERE is the caller's line, as last parameters.
#define EMU_UNSEEN __attribute__((no_sanitize("thread")))
#define EMU_HERE const char *emu_file = __builtin_FILE(), int emu_line = __builtin_LINE()
#define EMU_ACCESS(address, bytes, way, at) emu::Seen emu_access_(address, bytes, way, at)
#define EMU_FENCE(at) (__atomic_thread_fence(__ATOMIC_SEQ_CST), emu_recording_now ? emu_fence(&(at)) : (void)0)

namespace emu {
struct Seen {
  int way;
  const bool on = emu_recording_now;
  EMU_UNSEEN Seen(const void* address, unsigned bytes, int way, const EmuAt& at) : way(way) {
    if (on) emu_access_begin(address, bytes, way, &at);
  }
  EMU_UNSEEN ~Seen() {
    if (on) emu_access_end(way);
  }
};
template <class To, class From>
__attribute__((always_inline)) inline To bits(const From& x) { static_assert(sizeof(To) == sizeof(From)); To y; memcpy(&y, &x, sizeof y); return y; }

// A kernel with its arguments, copied when it is launched, as CUDA does. `cluster` of no blocks: what __cluster_dims__ says of `function`.
enum How { COOPERATIVE = 1, EARLY = 2 };
inline std::map<std::string, dim3>& clusters() { static std::map<std::string, dim3> all; return all; }
struct ClusterDims {
  ClusterDims(const char* kernel, unsigned x, unsigned y = 1, unsigned z = 1) { clusters()[kernel] = dim3(x, y, z); }
};
template <class F>
void enqueue(const char* name, const char* function, dim3 grid, dim3 block, dim3 cluster, size_t shared, void* stream, int how, F body) {
  const auto found = clusters().find(function);
  if (!cluster.x) cluster = found == clusters().end() ? dim3(1) : found->second;
  const unsigned g[3] = {grid.x, grid.y, grid.z}, b[3] = {block.x, block.y, block.z}, c[3] = {cluster.x, cluster.y, cluster.z};
  emu_enqueue(name, g, b, c, (unsigned)shared, stream, how, [](void* f) { (*static_cast<F*>(f))(); }, new F(body),
              [](void* f) { delete static_cast<F*>(f); });
}
// Dynamic shared memory that a kernel may have: 48 KB, and what cudaFuncSetAttribute has allowed. By its name in the text, since
// the instances of a template have no address before they are used; "" stands for all.
constexpr size_t SHARED_BEFORE_ASKING = 48 << 10;
inline std::map<std::string, size_t>& allowed() { static std::map<std::string, size_t> all; return all; }
inline bool too_much_shared(const char* kernel, size_t bytes) {
  if (bytes <= SHARED_BEFORE_ASKING || !*kernel) return false;
  for (const char* name : {"", kernel})
    if (const auto found = allowed().find(name); found != allowed().end() && bytes <= found->second) return false;
  return emu_set_error(1), true;  // cudaErrorInvalidValue: nothing is launched
}
struct Launch {
  dim3 grid, block;
  size_t shared = 0;
  void* stream = nullptr;
  Launch(dim3 grid, dim3 block, size_t shared = 0, void* stream = nullptr)
      : grid(grid), block(block), shared(shared), stream(stream) {}
  template <class F, class... A>
  void operator()(const char* name, const char* function, F kernel, A... arguments) const {
    if (too_much_shared(function, shared)) return;
    enqueue(name, function, grid, block, 0, shared, stream, 0, [=] { kernel(arguments...); });
  }
};
// A kernel by its address and an array of pointers to its arguments, as drivers launch it.
template <class... A>
int sizes(void (*)(A...), int* out) {
  const int all[] = {(int)sizeof(A)..., 0};
  memcpy(out, all, sizeof all);
  return sizeof...(A);
}
template <class... A, size_t... I>
void launch_packed(std::index_sequence<I...>, const char* name, void (*kernel)(A...), dim3 grid, dim3 block, size_t shared,
                   void* stream, int how, void** arguments, dim3 cluster) {
  auto body = [kernel](std::remove_const_t<A>... a) { kernel(a...); };
  auto bound = std::bind(body, *static_cast<std::remove_const_t<A>*>(arguments[I])...);
  enqueue(name, name, grid, block, cluster, shared, stream, how, bound);
}
template <class... A>
void launch_packed(const char* name, void (*kernel)(A...), dim3 grid, dim3 block, size_t shared, void* stream, int how,
                   void** arguments, dim3 cluster = 0) {
  launch_packed(std::index_sequence_for<A...>{}, name, kernel, grid, block, shared, stream, how, arguments, cluster);
}
using Packed = std::function<void(dim3, dim3, size_t, void*, int, void**, dim3)>;
inline std::map<const void*, Packed>& known() { static std::map<const void*, Packed> all; return all; }
struct Known {
  template <class... A>
  Known(const char* name, void (*kernel)(A...)) {
    known()[(const void*)kernel] = [=](dim3 g, dim3 b, size_t s, void* t, int how, void** a, dim3 cluster) {
      if (too_much_shared(name, s)) return;
      launch_packed(name, kernel, g, b, s, t, how, a, cluster);
    };
  }
};

template <class T>
EMU_UNSEEN inline T from_lane(unsigned mask, T x, unsigned lane) {
  static_assert(sizeof x <= 16);
  memcpy(&emu_warp()[emu_lane()], &x, sizeof x);
  emu_meet_warp(mask);
  T y;
  memcpy(&y, &emu_warp()[lane & 31], sizeof y);
  emu_meet_warp(mask);
  return y;
}
template <class T, class Op>
EMU_UNSEEN inline T reduce(unsigned mask, T x, Op op) {  // by all of the mask, in the order of lanes
  memcpy(&emu_warp()[emu_lane()], &x, sizeof x);
  emu_meet_warp(mask);
  T sum{};
  bool first = true;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    T y;
    memcpy(&y, &emu_warp()[lane], sizeof y);
    sum = first ? y : op(sum, y), first = false;
  }
  emu_meet_warp(mask);
  return sum;
}
}  // namespace emu

// ---------------------------------------------------------------------------------------------------------------------
// Barriers, fences, votes, shuffles

namespace emu {
inline unsigned cluster_size() { return emu_cluster_dim.x * emu_cluster_dim.y * emu_cluster_dim.z; }
inline unsigned cluster_rank() {
  const uint3& d = emu_cluster_dim;
  return blockIdx.x % d.x + d.x * (blockIdx.y % d.y + d.y * (blockIdx.z % d.z));
}
}  // namespace emu
inline void cudaGridDependencySynchronize() { emu_wait_for_grids(); }
inline void cudaTriggerProgrammaticLaunchCompletion() {}  // those behind it may begin: here they begin when it has ended, which is allowed
inline void __syncthreads() { emu_sync_named(0, 0); }
int __syncthreads_count(int x);
inline int __syncthreads_or(int x) { return __syncthreads_count(x) != 0; }
inline int __syncthreads_and(int x) { return __syncthreads_count(!x) == 0; }
inline void __syncwarp(unsigned mask = ~0u) { emu_sync_warp(mask); }
inline void __threadfence(EMU_HERE) { const EmuAt at{"__threadfence", emu_file, emu_line}; EMU_FENCE(at); }
inline void __threadfence_block(EMU_HERE) { const EmuAt at{"__threadfence_block", emu_file, emu_line}; EMU_FENCE(at); }
inline void __threadfence_system(EMU_HERE) { const EmuAt at{"__threadfence_system", emu_file, emu_line}; EMU_FENCE(at); }
inline void __nanosleep(unsigned ns) { emu_sleep(ns); }
inline long long clock64() { return (long long)(emu_now_ns() * 2); }
inline int emu_clock() { return (int)clock64(); }  // the host has a clock() of its own (see rewrite.py)
inline long long wall_clock64() { return (long long)emu_now_ns(); }
[[noreturn]] inline void __trap() { emu_fault("trap", nullptr); }

namespace emu {
inline unsigned base_of(int width) { return emu_lane() / width * width; }
}
template <class T> inline T __shfl_sync(unsigned mask, T x, int lane, int width = 32) {
  return emu::from_lane(mask, x, emu::base_of(width) + (lane & (width - 1)));
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T x, int by, int width = 32) {
  const unsigned from = emu_lane() ^ by;  // of a later part of the warp: its own value, as PTX has it
  return emu::from_lane(mask, x, from >= emu::base_of(width) + width ? emu_lane() : from);
}
template <class T> inline T __shfl_down_sync(unsigned mask, T x, unsigned by, int width = 32) {
  return emu::from_lane(mask, x, emu_lane() + by < emu::base_of(width) + width ? emu_lane() + by : emu_lane());
}
template <class T> inline T __shfl_up_sync(unsigned mask, T x, unsigned by, int width = 32) {
  return emu::from_lane(mask, x, emu_lane() >= emu::base_of(width) + by ? emu_lane() - by : emu_lane());
}
template <class T> inline T __reduce_add_sync(unsigned mask, T x) { return emu::reduce(mask, x, [](T a, T b) { return a + b; }); }
template <class T> inline T __reduce_max_sync(unsigned mask, T x) { return emu::reduce(mask, x, [](T a, T b) { return a < b ? b : a; }); }
template <class T> inline T __reduce_min_sync(unsigned mask, T x) { return emu::reduce(mask, x, [](T a, T b) { return b < a ? b : a; }); }
template <class T> inline T __reduce_and_sync(unsigned mask, T x) { return emu::reduce(mask, x, [](T a, T b) { return a & b; }); }
template <class T> inline T __reduce_or_sync(unsigned mask, T x) { return emu::reduce(mask, x, [](T a, T b) { return a | b; }); }
template <class T> inline T __reduce_xor_sync(unsigned mask, T x) { return emu::reduce(mask, x, [](T a, T b) { return a ^ b; }); }
inline unsigned __ballot_sync(unsigned mask, int x) { return __reduce_or_sync(mask, x ? 1u << emu_lane() : 0u); }
inline int __any_sync(unsigned mask, int x) { return __ballot_sync(mask, x) != 0; }
inline int __all_sync(unsigned mask, int x) { return __ballot_sync(mask, !x) == 0; }
namespace emu {
template <class T> EMU_UNSEEN inline unsigned same_lanes(unsigned mask, T x) {
  memcpy(&emu_warp()[emu_lane()], &x, sizeof x);
  emu_meet_warp(mask);
  unsigned same = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1 && !memcmp(&emu_warp()[lane], &x, sizeof x)) same |= 1u << lane;
  emu_meet_warp(mask);
  return same;
}
}  // namespace emu
template <class T> inline unsigned __match_any_sync(unsigned mask, T x) { return emu::same_lanes(mask, x); }
template <class T> inline unsigned __match_all_sync(unsigned mask, T x, int* all) {
  *all = emu::same_lanes(mask, x) == mask;
  return *all ? mask : 0;
}
inline unsigned __activemask(EMU_HERE) {
  static constexpr EmuAt at{"__activemask", nullptr, 0};
  static bool seen = (emu_used(&at, 1), true);
  return (void)seen, emu_active_mask(emu_line);
}
EMU_UNSEEN inline int __syncthreads_count(int x) {
  unsigned* count = static_cast<unsigned*>(emu_shared_static((const void*)&__syncthreads_count, 0, 4, 4));
  __syncthreads();
  if (emu_linear_thread() == 0) *count = 0;
  __syncthreads();
  *count += x != 0;
  __syncthreads();
  return (int)*count;
}

#include "emu_atomics.h"
#include "emu_math.h"
#include "emu_ptx.h"
