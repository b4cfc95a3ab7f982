// The kernels of `pkb probe`: one per way that bytes travel between GPUs, and the waits whose latency is measured.
// Bytes and addresses are multiples of 16 everywhere; rank/probe/links.py sees to that, and checks what arrived.
#include "pkb.cuh"
using namespace pkb;

extern "C" __global__ void empty() {}

// --- SM loads and stores, 16 bytes a thread ----------------------------------------------------------------------------

// Pulls when `from` is a peer's, pushes when `to` is, and copies HBM when neither is.
extern "C" __global__ void __launch_bounds__(1024) move(char* to, const char* from, u64 bytes) { copy_grid(to, from, bytes); }

// ld.cg leaves L1 out, so that a buffer that is read again comes from L2, the level this is meant to measure.
__device__ __forceinline__ uint4 ld_l2(const void* p) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}

// Reads a buffer `passes` times and adds the sum of its words to *sum: the sum proves that every word was read.
extern "C" __global__ void __launch_bounds__(1024) read_words(const char* from, u64 bytes, int passes, u32* sum) {
  const u64 vectors = bytes / 16, threads = (u64)gridDim.x * blockDim.x;
  u32 total = 0;
  for (int pass = 0; pass < passes; ++pass) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 7 * threads < vectors; i += 8 * threads) {
      uint4 v[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) v[k] = ld_l2(from + 16 * (i + k * threads));
#pragma unroll
      for (int k = 0; k < 8; ++k) total += v[k].x + v[k].y + v[k].z + v[k].w;
    }
    for (; i < vectors; i += threads) {
      const uint4 v = ld_l2(from + 16 * i);
      total += v.x + v.y + v.z + v.w;
    }
  }
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) total += __shfl_xor_sync(0xffffffffu, total, lane);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, total);
}

// --- TMA: bulk copies through shared memory, driven by one thread a block -------------------------------------------------

constexpr u32 STAGES = 6;  // rank/probe/links.py gives STAGES * chunk bytes of dynamic shared memory
constexpr u32 LAG = 2;     // stores that may still read their stage while it moves on; the rest of the stages are loads under way

__device__ __forceinline__ u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ __forceinline__ void bulk_load(u32 stage, const char* from, u32 bytes, u32 barrier) {
  // The one arrival that the barrier was made for, and the bytes that complete its phase.
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(stage), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

__device__ __forceinline__ void bulk_wait(u32 barrier, u32 parity) {
  u32 done = 0;
  Deadline deadline(5000000000ull);
  while (!done) {
    asm volatile("{.reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;}"
                 : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    if (!done && deadline.passed()) __trap();  // a load that never lands must be an error, not a hang
  }
}

#endif

// Block b moves chunks b, b + gridDim, ...: loads run ahead into STAGES buffers, stores follow, and a buffer is loaded again
// when its store has finished reading it.
extern "C" __global__ void __launch_bounds__(32) move_bulk(char* to, const char* from, u64 bytes, u32 chunk) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char data[];
  __shared__ __align__(8) u64 full[STAGES];
  if (threadIdx.x != 0) return;
  const u32 stages = shared_address(data), barriers = shared_address(full);
  for (u32 s = 0; s < STAGES; ++s)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers + 8 * s) : "memory");
  // The copy engine looks at the barriers through another proxy than the stores that made them.
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");

  const u64 chunks = (bytes + chunk - 1) / chunk;
  const u64 mine = blockIdx.x < chunks ? (chunks - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;
  auto offset = [&](u64 k) { return (blockIdx.x + k * gridDim.x) * chunk; };
  auto length = [&](u64 k) { return (u32)(bytes - offset(k) < chunk ? bytes - offset(k) : chunk); };
  auto load = [&](u64 k) {
    const u32 s = k % STAGES;
    bulk_load(stages + s * chunk, from + offset(k), length(k), barriers + 8 * s);
  };
  for (u64 k = 0; k < STAGES && k < mine; ++k) load(k);
  for (u64 k = 0; k < mine; ++k) {
    const u32 s = k % STAGES;
    bulk_wait(barriers + 8 * s, (u32)(k / STAGES) & 1);
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 ::"l"(to + offset(k)), "r"(stages + s * chunk), "r"(length(k)) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    if (k >= LAG && k - LAG + STAGES < mine) {
      // All but the LAG newest stores have read their stage, so the stage of store k - LAG is free.
      asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LAG) : "memory");
      load(k - LAG + STAGES);
    }
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");  // written, not only read
#endif
}

// --- multimem: the switch adds, the switch copies. Only where the handle has a multicast address --------------------------

extern "C" __global__ void __launch_bounds__(1024) multimem_load(char* to, const char* multicast, u64 bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const u64 vectors = bytes / 16, threads = (u64)gridDim.x * blockDim.x;
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  for (; i + 3 * threads < vectors; i += 4 * threads) {
    uint4 v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = Multimem<f32>::ld_reduce(multicast + 16 * (i + k * threads));
#pragma unroll
    for (int k = 0; k < 4; ++k) st_stream(to + 16 * (i + k * threads), v[k]);
  }
  for (; i < vectors; i += threads) st_stream(to + 16 * i, Multimem<f32>::ld_reduce(multicast + 16 * i));
#endif
}

extern "C" __global__ void __launch_bounds__(1024) multimem_store(char* multicast, const char* from, u64 bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const u64 vectors = bytes / 16, threads = (u64)gridDim.x * blockDim.x;
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  for (; i + 3 * threads < vectors; i += 4 * threads) {
    uint4 v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = ld_stream(from + 16 * (i + k * threads));
#pragma unroll
    for (int k = 0; k < 4; ++k) Multimem<f32>::st(multicast + 16 * (i + k * threads), v[k]);
  }
  for (; i < vectors; i += threads) Multimem<f32>::st(multicast + 16 * i, ld_stream(from + 16 * i));
#endif
}

// --- Latency ------------------------------------------------------------------------------------------------------------
// Counters in a zeroed symmetric buffer: words 0..world-1 for barriers, word PING for the round trip. They only rise, and
// `base` is where this launch begins. The first exchange waits for the peer's launch, so the clock starts after it.
// out[0]: nanoseconds of `rounds` exchanges; out[1]: 1 if a wait ran out.

constexpr u32 PING = 64;

// Reading the clock costs more than a poll, so it is looked at only when the wait has become long.
__device__ __forceinline__ bool reached(const u32* counter, u32 value, u64 timeout_ns) {
  for (u32 poll = 0; poll < 4096; ++poll)
    if ((int)(ld_acquire_sys(counter) - value) >= 0) return true;
  return wait_reaches(counter, value, timeout_ns);
}

extern "C" __global__ void ping(u32* const* boxes, int rank, int peer, int starts, int rounds, u32 base, u64 timeout_ns,
                                u64* out) {
  u32 *mine = boxes[rank] + PING, *theirs = boxes[peer] + PING;
  u64 began = 0;
  bool met = true;
  for (int i = 1; i <= rounds + 1 && met; ++i) {
    if (i == 2) began = now_ns();
    if (starts) st_release_sys(theirs, base + i);
    met = reached(mine, base + i, timeout_ns);
    if (!starts) st_release_sys(theirs, base + i);
  }
  out[0] = now_ns() - began;
  out[1] = !met;
}

extern "C" __global__ void barriers(u32* const* boxes, int rank, int world, int rounds, u32 base, u64 timeout_ns, u64* out) {
  const int peer = threadIdx.x;
  u64 began = 0;
  bool met = true;
  for (int i = 1; i <= rounds + 1 && met; ++i) {
    if (i == 2) began = now_ns();
    bool came = true;
    if (peer < world) {
      st_release_sys(boxes[peer] + rank, base + i);
      came = reached(boxes[rank] + peer, base + i, timeout_ns);
    }
    met = __syncthreads_and(came);
  }
  if (peer == 0) {
    out[0] = now_ns() - began;
    out[1] = !met;
  }
}
