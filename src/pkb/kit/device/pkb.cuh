// pkb.cuh: what a kernel needs to talk to other GPUs through symmetric memory. It includes nothing, so it compiles in 0.1 s.
//
// Words. A *peer pointer* is an address in another GPU's symmetric buffer, mapped into this process: loads and stores through
// it travel over NVLink. A *signal* is a uint32 in symmetric memory that one rank sets and another waits for. A *signal pad*
// is an array of them, one pad per rank; `signal_pads` is the table of all ranks' pads (torch: handle.signal_pad_ptrs_dev).
//
// Ordering, the rule behind every bug in such kernels: data written before a RELEASE at .sys scope is visible to a thread
// whose ACQUIRE at .sys scope read what the release wrote. Everything else (a volatile flag, __threadfence_block, a plain
// store of a flag) lets a peer see the flag before the data. A release by one thread covers the writes of its whole block
// if a __syncthreads() lies between, and likewise an acquire. All barriers below are built that way.
#pragma once

namespace pkb {

using u32 = unsigned int;
using u64 = unsigned long long;

// ---------------------------------------------------------------------------------------------------------------------
// Places in the grid and the clock

__device__ __forceinline__ u32 thread_in_block() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
__device__ __forceinline__ u32 threads_in_block() { return blockDim.x * blockDim.y * blockDim.z; }
__device__ __forceinline__ u32 block_in_grid() { return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z); }
__device__ __forceinline__ u32 blocks_in_grid() { return gridDim.x * gridDim.y * gridDim.z; }

// Nanoseconds of the GPU's global timer. Its step can be as coarse as a microsecond.
__device__ __forceinline__ u64 now_ns() {
  u64 t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

// A bound on waiting; 0 waits for ever. A wait that runs out returns false and leaves the signal as it was.
struct Deadline {
  u64 end;
  __device__ __forceinline__ explicit Deadline(u64 timeout_ns) : end(timeout_ns ? now_ns() + timeout_ns : 0) {}
  __device__ __forceinline__ bool passed() const { return end && now_ns() > end; }
};

// Debug builds (PKB_KIT_DEBUG=1, or -DPKB_DEBUG=1 among the options): a pipe's and an exchange's waits have a deadline, say
// who waits for whom, and stop the kernel. Other builds wait for ever: a peer may be late by any time, and be right.
#ifndef PKB_DEBUG
#define PKB_DEBUG 0
#endif
#ifndef PKB_DEBUG_TIMEOUT_MS
#define PKB_DEBUG_TIMEOUT_MS 10000
#endif
constexpr bool DEBUG = PKB_DEBUG;
constexpr u64 DEBUG_TIMEOUT_NS = PKB_DEBUG ? PKB_DEBUG_TIMEOUT_MS * 1000000ull : 0;
__device__ __noinline__ void report_late(u32 rank, u32 peer, u32 channel, u32 step, const volatile u32* found) {
  printf("pkb: rank %u, block %u of kernel grid %u: rank %u has not come to step %u of channel %u, it is at %u\n", rank,
         block_in_grid(), blocks_in_grid(), peer, step, channel, *found);
  __trap();
}
__device__ __noinline__ void report_grid(u32 rank, u32 blocks) {
  printf("pkb: rank %u: block %u of %u on a pipe for %u\n", rank, block_in_grid(), blocks_in_grid(), blocks);
  __trap();
}

// ---------------------------------------------------------------------------------------------------------------------
// Signals: system-scope operations on one uint32, local or on a peer

__device__ __forceinline__ void st_release_sys(u32* p, u32 v) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__device__ __forceinline__ void st_relaxed_sys(u32* p, u32 v) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__device__ __forceinline__ u32 ld_acquire_sys(const u32* p) {
  u32 v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ u32 ld_acquire_gpu(const u32* p) {
  u32 v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ u32 ld_relaxed_sys(const u32* p) {
  u32 v;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ u32 cas_release_sys(u32* p, u32 expect, u32 v) {
  u32 old;
  asm volatile("atom.release.sys.global.cas.b32 %0, [%1], %2, %3;" : "=r"(old) : "l"(p), "r"(expect), "r"(v) : "memory");
  return old;
}
__device__ __forceinline__ u32 cas_acquire_sys(u32* p, u32 expect, u32 v) {
  u32 old;
  asm volatile("atom.acquire.sys.global.cas.b32 %0, [%1], %2, %3;" : "=r"(old) : "l"(p), "r"(expect), "r"(v) : "memory");
  return old;
}
__device__ __forceinline__ u32 add_release_sys(u32* p, u32 v) {
  u32 old;
  asm volatile("atom.release.sys.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
  return old;
}
__device__ __forceinline__ u32 add_acq_rel_gpu(u32* p, u32 v) {
  u32 old;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
  return old;
}
// Orders everything this thread did before against everything after, for all GPUs. Slow (about a microsecond over NVLink):
// one release by one thread after __syncthreads() is the cheaper way.
__device__ __forceinline__ void fence_sys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// torch's convention: a slot holds 0 or 1; put turns 0 into 1 (and waits while an earlier put is not yet taken), wait turns 1
// into 0. A slot is therefore clean again after each pair, and kernels may mix these with handle.barrier() and
// handle.put_signal() on the same channel.
__device__ __forceinline__ bool put_signal(u32* slot, u64 timeout_ns = 0) {
  Deadline deadline(timeout_ns);
  while (cas_release_sys(slot, 0, 1) != 0) {
    if (deadline.passed()) return false;
  }
  return true;
}
__device__ __forceinline__ bool wait_signal(u32* slot, u64 timeout_ns = 0) {
  Deadline deadline(timeout_ns);
  while (cas_acquire_sys(slot, 1, 0) != 1) {
    if (deadline.passed()) return false;
  }
  return true;
}

// Waits until a counter has reached `value`. Counters only rise (add_release_sys, or st_release_sys of a growing number), and
// may wrap around: the difference is compared, not the value. Every acquire empties the L1 of the SM, of other blocks' lines
// too, so while the counter is behind it is polled relaxed, and acquired once when it is there.
__device__ __forceinline__ bool wait_reaches(const u32* counter, u32 value, u64 timeout_ns = 0) {
  if ((int)(ld_acquire_sys(counter) - value) >= 0) return true;
  Deadline deadline(timeout_ns);
  while ((int)(ld_relaxed_sys(counter) - value) < 0) {
    if (deadline.passed()) return false;
  }
  return (int)(ld_acquire_sys(counter) - value) >= 0;
}

// The slot in `owner`'s pad that `peer` sets for it on a channel.
__device__ __forceinline__ u32* slot_of(u32* const* signal_pads, u32 owner, u32 peer, u32 world, u32 channel) {
  return signal_pads[owner] + channel * world + peer;
}

// ---------------------------------------------------------------------------------------------------------------------
// Barriers across ranks

// Block `channel` of this rank meets block `channel` of all ranks. Every thread of the block must call it. What any thread of
// any of those blocks wrote before is visible to all of them after. Different blocks must use different channels, and ranks
// must launch the same number of blocks. Returns false in at least one thread if a wait ran out; the pad is then unusable.
__device__ __forceinline__ bool barrier_block(u32* const* signal_pads, u32 rank, u32 world, u32 channel, u64 timeout_ns = 0) {
  bool met = true;
  __syncthreads();  // the writes of all threads come before the puts
  // All puts, then all waits: with fewer threads than ranks, a wait before a put could stop everybody.
  for (u32 peer = thread_in_block(); peer < world; peer += threads_in_block())
    met &= put_signal(slot_of(signal_pads, peer, rank, world, channel), timeout_ns);
  for (u32 peer = thread_in_block(); peer < world; peer += threads_in_block())
    met &= wait_signal(slot_of(signal_pads, rank, peer, world, channel), timeout_ns);
  __syncthreads();  // and the waits before the reads of all threads
  return met;
}

// The same barrier with counters in place of flags: one store and one load per peer, no atomics over NVLink, nothing to reset.
// The number of barriers so far is kept in the slot that a rank has for itself, so it survives from launch to launch and works in
// CUDA graphs. Its slots are never 0 again: give it channels (better: a zeroed symmetric buffer) of its own, not shared with
// barrier_block or with torch. All ranks must make the same calls on a channel.
__device__ __forceinline__ bool barrier_epoch(u32* const* pads, u32 rank, u32 world, u32 channel, u64 timeout_ns = 0) {
  bool met = true;
  u32* mine = pads[rank] + channel * world;
  __syncthreads();
  const u32 epoch = ld_relaxed_sys(mine + rank) + 1;
  for (u32 peer = thread_in_block(); peer < world; peer += threads_in_block())
    if (peer != rank) st_release_sys(slot_of(pads, peer, rank, world, channel), epoch);
  for (u32 peer = thread_in_block(); peer < world; peer += threads_in_block())
    if (peer != rank) met &= wait_reaches(mine + peer, epoch, timeout_ns);
  __syncthreads();  // all have read the old count before it moves
  if (thread_in_block() == 0) st_relaxed_sys(mine + rank, epoch);
  return met;
}

// Block `channel` tells the blocks `channel` of all peers that it has done `count` of something, or waits until all of them have.
// Every thread of the block must call it. What the block wrote before announcing is visible to whoever has awaited that count.
// Counts only rise, from launch to launch too: keep them in a zeroed symmetric buffer of their own (kit.pipeline has one).
__device__ __forceinline__ void announce(u32* const* counts, u32 rank, u32 world, u32 channel, u32 count) {
  __syncthreads();  // the writes of all threads come before
  for (u32 peer = thread_in_block(); peer < world; peer += threads_in_block())
    if (peer != rank) st_release_sys(slot_of(counts, peer, rank, world, channel), count);
}
// `own`: where this rank's counts of the channel begin, one for each peer.
__device__ __forceinline__ bool await_counts(const u32* own, u32 rank, u32 world, u32 channel, u32 count,
                                             u64 timeout_ns = DEBUG_TIMEOUT_NS) {
  bool met = true;
  for (u32 peer = thread_in_block(); peer < world; peer += threads_in_block()) {
    if (peer == rank) continue;
    if (wait_reaches(own + peer, count, timeout_ns)) continue;
    met = false;
    if (DEBUG) report_late(rank, peer, channel, count, own + peer);
  }
  __syncthreads();  // and the reads of all threads after
  return met;
}
__device__ __forceinline__ bool await_all(u32* const* counts, u32 rank, u32 world, u32 channel, u32 count,
                                          u64 timeout_ns = DEBUG_TIMEOUT_NS) {
  return await_counts(slot_of(counts, rank, 0, world, channel), rank, world, channel, count, timeout_ns);
}

// Work in turns: a block produces its part of turn t, here or in a peer's memory, tells the blocks of the same number on all
// ranks, and consumes turn t when all of them have produced it; it produces `ahead` turns ahead of what it consumes (its
// look-ahead). Data that pass through in small turns stay in L2, and no block ever waits for a whole grid.
//
// What is produced goes into slots that are used again: turn t into slot (epoch + t) % slots_each of its block, where
// slots_each = 2 ahead + 2 (kit.pipeline, the only place that computes it). No signal says that a slot is free, since none is
// needed. A block that produces turn t has seen turn t - ahead - 1 of all peers, and a peer produced that after it had
// consumed turn t - 2 ahead - 2: what lay in the slot. slots_each is a power of two: slots still go round when counts wrap.
//
// The epoch of a block is the number of turns that it has made in all launches before. It lies on the device, in the count
// that a rank has for itself: so the same holds from launch to launch, a CUDA graph may replay a launch, and a launch that
// failed on the host has counted nothing. All ranks must make the same launches: the same blocks, the same turns. Launches
// on one pipe must not overlap (kit.pipeline orders streams; replays of a graph are the caller's to order).
//
// Addresses come with the launch: a table in memory is one more load that a kernel begins by waiting for, from a page of its own.
constexpr u32 MAX_RANKS = 64;
struct Pipe {               // kit.pipeline makes it, pipe(turns) on the host: pass it by value, as const __grid_constant__ Pipe
  char* slots[MAX_RANKS];   // of all ranks
  u32* counts[MAX_RANKS];   // of all ranks: [block][rank]
  u32* own_counts;          // of this rank
  char* multicast;          // of all ranks' slots at once; null where NVLS is not to be used
  int rank, world;
  u32 blocks;               // a grid has at most as many
  u32 slot_bytes;           // of one slot
  u32 slots_each;           // of a block
  u32 ahead;                // look-ahead, in turns
  u32 turns;                // of this launch

  // Of this block: by peer, and at its own rank its epoch.
  __device__ __forceinline__ u32* block_counts() const { return own_counts + block_in_grid() * world; }
  // Every thread of the block calls it once, before the first turn.
  __device__ __forceinline__ u32 epoch() const {
    if (DEBUG && block_in_grid() >= blocks) report_grid(rank, blocks);
    return ld_relaxed_sys(block_counts() + rank);
  }
  // Where this block's slot of a turn begins, from the start of any rank's slots (or of their multicast address).
  __device__ __forceinline__ u64 at(u32 epoch, u32 turn) const {
    return ((u64)block_in_grid() * slots_each + ((epoch + turn) & (slots_each - 1))) * slot_bytes;
  }
  __device__ __forceinline__ void announce(u32 count) const { pkb::announce(counts, rank, world, block_in_grid(), count); }
  // By the address that came with the launch: each acquire empties L1, and a table of addresses with it.
  __device__ __forceinline__ void await_all(u32 count) const { await_counts(block_counts(), rank, world, block_in_grid(), count); }
  // The block's epoch for its next launch: `count` is the last that it announced. All threads have announced since they read it.
  __device__ __forceinline__ void advance(u32 count) const {
    if (thread_in_block() == 0) st_relaxed_sys(block_counts() + rank, count);
  }
};
template <class Produce, class Consume>
__device__ __forceinline__ void pipeline(const Pipe& p, u32 epoch, Produce produce, Consume consume) {
  for (u32 turn = 0; turn < p.turns + p.ahead; ++turn) {
    if (turn < p.turns) {
      produce(turn);
      p.announce(epoch + turn + 1);
    }
    if (turn < p.ahead) continue;
    p.await_all(epoch + turn - p.ahead + 1);
    consume(turn - p.ahead);
  }
  p.advance(epoch + p.turns);
}
// The blocks of this number of all ranks meet: as one turn; several times in a kernel, if need be, and before and after pipelines.
__device__ __forceinline__ void meet(const Pipe& p) {
  __syncthreads();  // thread 0 has stored the epoch of what came before, for all to read
  const u32 count = p.epoch() + 1;
  p.announce(count), p.await_all(count), p.advance(count);
  __syncthreads();  // and that of what comes next
}

// All blocks of this grid meet. They must all be running at once: launch at most kernel.resident_blocks(...) of them, or launch
// cooperatively. `counter` is one zeroed uint32 in this GPU's memory, used by one grid at a time; it needs no reset. (The top
// bit flips when the last block arrives, and the low bits come back to what they were.)
__device__ __forceinline__ void barrier_grid(u32* counter) {
  __syncthreads();
  if (thread_in_block() == 0) {
    const u32 step = block_in_grid() == 0 ? 0x80000000u - (blocks_in_grid() - 1) : 1u;
    const u32 before = add_acq_rel_gpu(counter, step);
    while (((before ^ ld_acquire_gpu(counter)) & 0x80000000u) == 0) {
    }
  }
  __syncthreads();
}

// All blocks of all ranks meet: the grid, then block 0 with its peers (by barrier_epoch), then the grid again.
__device__ __forceinline__ bool barrier_world(u32* const* pads, u32 rank, u32 world, u32 channel, u32* counter, u64 timeout_ns = 0) {
  bool met = true;
  barrier_grid(counter);
  if (block_in_grid() == 0) met = barrier_epoch(pads, rank, world, channel, timeout_ns);
  barrier_grid(counter);
  return met;
}

// The end of a kernel that wrote to its peers: the last of its blocks tells them, and waits until theirs have told. So the
// kernel ends when all ranks' data of this exchange have come, and the next one in the stream just reads them. One block
// waits, and when all others have done their work: a grid may have any size. Every thread of all blocks must call it, and all
// ranks must make the same calls. `exchange` is 0, 1, ...: a kernel that ends so has its own among those of one call.
//
// How often each exchange was made is counted on the device, as a Pipe's epochs are, with the same guarantees. Where calls
// use two regions in turn, the count of exchange 0 says which: the kernel that ends with exchange 0 takes next_region, those
// behind it in the call this_region.
//
// The stores of other blocks than the last reach the peers by its release alone: their own atomic (acq_rel at .gpu) comes
// before it, and releases are cumulative in the PTX model.
struct Peers {              // kit.exchange makes it: pass it by value, as const __grid_constant__ Peers
  char* stages[MAX_RANKS];  // of all ranks: signals [exchange][rank], a counter for each exchange, then data
  char* stage;              // of this rank
  u64 head;                 // bytes before the data
  u64 region_bytes;
  int rank, world;
  u32 regions, exchanges;

  __device__ __forceinline__ u32* own_count(u32 exchange) const {
    return reinterpret_cast<u32*>(stage) + exchange * world + rank;
  }
  // Where the data of a call begin in every rank's stage. Every thread calls it before finish_grid.
  __device__ __forceinline__ u64 next_region() const { return region(1); }
  __device__ __forceinline__ u64 this_region() const { return region(0); }
  __device__ __forceinline__ u64 region(u32 more) const {
    return regions == 1 ? head : head + (ld_relaxed_sys(own_count(0)) + more) % regions * region_bytes;
  }
};
__device__ __forceinline__ void finish_grid(const Peers& p, u32 exchange) {
  __shared__ bool last;
  u32* const* signals = reinterpret_cast<u32* const*>(p.stages);
  u32* arrived = reinterpret_cast<u32*>(p.stage) + p.exchanges * p.world + exchange;
  const u32 count = ld_relaxed_sys(p.own_count(exchange)) + 1;  // on its way while blocks arrive; only the last one writes it
  __syncthreads();
  if (thread_in_block() == 0) last = add_acq_rel_gpu(arrived, 1) == blocks_in_grid() - 1;
  __syncthreads();
  if (!last) return;
  if (thread_in_block() == 0) *arrived = 0, st_relaxed_sys(p.own_count(exchange), count);  // for the next call
  announce(signals, p.rank, p.world, exchange, count);
  await_all(signals, p.rank, p.world, exchange, count);
}

// In debug builds: what `turns_of` (pkb_collective.cuh) found in the place of a pipe's peers.
__device__ __noinline__ void report_overwritten(u32 rank) {
  printf("pkb: rank %u, block %u: another pipe's peers lie where this one's were; a second pipe of a kernel has a place of its own: "
         "turns_of(pipe, place)\n", rank, block_in_grid());
  __trap();
}

// ---------------------------------------------------------------------------------------------------------------------
// 16-byte loads and stores. NVLink likes 16 bytes per thread and neighbouring threads on neighbouring addresses.
//
// Which load? A plain load may be served by this SM's L1 cache, which no peer's write (nor another SM's) invalidates; an
// ACQUIRE does. So after a barrier above, ld_weak is right even for peer data. ld_fresh never comes from L1: use it for data that
// changes while you poll. ld_once uses the read-only path, which an acquire need not refresh: only for memory that nobody
// writes while the kernel runs (your own inputs), never for a symmetric buffer.

__device__ __forceinline__ uint4 ld_weak(const void* p) { return *reinterpret_cast<const uint4*>(p); }
__device__ __forceinline__ uint4 ld_fresh(const void* p) {
  uint4 v;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ uint4 ld_volatile(const void* p) {
  uint4 v;
  asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ uint4 ld_once(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
// Read once and do not push other data out of L1. Ordered like ld_weak.
__device__ __forceinline__ uint4 ld_stream(const void* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void st_weak(void* p, uint4 v) { *reinterpret_cast<uint4*>(p) = v; }
__device__ __forceinline__ void st_stream(void* p, uint4 v) {
  asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1,%2,%3,%4};"
               ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ __forceinline__ void st_fresh(void* p, uint4 v) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1,%2,%3,%4};"
               ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// Read or written once, and the first to leave L2 when it is full: for arguments and results, where slots should stay in it.
__device__ __forceinline__ uint4 ld_leaving(const void* p) {
  uint4 v;
  asm volatile("ld.global.cs.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void st_leaving(void* p, uint4 v) {
  asm volatile("st.global.cs.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// load(i) for i from begin to end, AT_ONCE at once, then use(i, what was loaded) in order: a thread that waits for each load
// before it asks for the next gets a fraction of the bandwidth.
template <u32 AT_ONCE, class Load, class Use>
__device__ __forceinline__ void in_flight(u32 begin, u32 end, Load load, Use use) {
#pragma unroll 1  // short code: its first run waits for every line of it
  for (; begin < end; begin += AT_ONCE) {
    uint4 v[AT_ONCE];
#pragma unroll
    for (u32 j = 0; j < AT_ONCE; ++j)
      if (begin + j < end) v[j] = load(begin + j);
#pragma unroll
    for (u32 j = 0; j < AT_ONCE; ++j)
      if (begin + j < end) use(begin + j, v[j]);
  }
}

// Copies `bytes` with `threads` threads, of which this is number `thread`. Either side may be a peer; pushing (peer `to`) is
// faster than pulling, because a store does not wait for an answer. Four loads fly at once. 16-byte alignment of both makes it
// fast, any alignment is right. No ordering: a barrier must follow before the receiver reads.
__device__ __forceinline__ void copy(void* to, const void* from, u64 bytes, u64 thread, u64 threads) {
  char* out = static_cast<char*>(to);
  const char* in = static_cast<const char*>(from);
  u64 done = 0;
  if (((reinterpret_cast<u64>(out) | reinterpret_cast<u64>(in)) & 15) == 0) {
    const u64 vectors = bytes / 16;
    u64 i = thread;
    for (; i + 3 * threads < vectors; i += 4 * threads) {
      uint4 v[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) v[k] = ld_stream(in + 16 * (i + k * threads));
#pragma unroll
      for (int k = 0; k < 4; ++k) st_stream(out + 16 * (i + k * threads), v[k]);
    }
    for (; i < vectors; i += threads) st_stream(out + 16 * i, ld_stream(in + 16 * i));
    done = vectors * 16;
  }
  for (u64 i = done + thread; i < bytes; i += threads) out[i] = in[i];
}
__device__ __forceinline__ void copy_block(void* to, const void* from, u64 bytes) {
  copy(to, from, bytes, thread_in_block(), threads_in_block());
}
__device__ __forceinline__ void copy_grid(void* to, const void* from, u64 bytes) {
  const u64 threads = threads_in_block();
  copy(to, from, bytes, block_in_grid() * threads + thread_in_block(), threads * blocks_in_grid());
}

// ---------------------------------------------------------------------------------------------------------------------
// Arithmetic on 16 bytes: 4 fp32, 8 bf16, 8 fp16 or 2 fp64
//
// Lanes<T>::accumulate widens into fp32 sums (do that when you add many ranks: adding in bf16 rounds at every step and the
// judge sees it), Lanes<T>::pack rounds once at the end, Lanes<T>::add is the packed add. T is pkb::f32, pkb::bf16, pkb::f16 or
// pkb::f64, wide_t<T> what sums are kept in.

struct f32 {};
struct bf16 {};
struct f16 {};
struct f64 {};
template <class T>
struct Lanes;

template <>
struct Lanes<f32> {
  static constexpr int count = 4;
  static constexpr int size = 4;  // bytes of one element
  __device__ __forceinline__ static float get(const void* p) { return *static_cast<const float*>(p); }
  __device__ __forceinline__ static void put(void* p, float x) { *static_cast<float*>(p) = x; }
  __device__ __forceinline__ static void accumulate(float (&sum)[4], uint4 v) {
    sum[0] += __uint_as_float(v.x);
    sum[1] += __uint_as_float(v.y);
    sum[2] += __uint_as_float(v.z);
    sum[3] += __uint_as_float(v.w);
  }
  __device__ __forceinline__ static uint4 pack(const float (&s)[4]) {
    return make_uint4(__float_as_uint(s[0]), __float_as_uint(s[1]), __float_as_uint(s[2]), __float_as_uint(s[3]));
  }
  __device__ __forceinline__ static uint4 add(uint4 a, uint4 b) {
    float s[4] = {0.f, 0.f, 0.f, 0.f};
    accumulate(s, a);
    accumulate(s, b);
    return pack(s);
  }
};

template <>
struct Lanes<bf16> {
  static constexpr int count = 8;
  static constexpr int size = 2;
  __device__ __forceinline__ static float get(const void* p) {
    return __uint_as_float((u32) * static_cast<const unsigned short*>(p) << 16);
  }
  __device__ __forceinline__ static void put(void* p, float x) {
    *static_cast<unsigned short*>(p) = (unsigned short)pack2(x, 0.f);
  }
  __device__ __forceinline__ static void accumulate(float (&sum)[8], uint4 v) {
    const u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // a bf16 is the upper half of an fp32
      sum[2 * i] += __uint_as_float(w[i] << 16);
      sum[2 * i + 1] += __uint_as_float(w[i] & 0xffff0000u);
    }
  }
  __device__ __forceinline__ static u32 pack2(float low, float high) {
    u32 w;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
    return w;
  }
  __device__ __forceinline__ static uint4 pack(const float (&s)[8]) {
    return make_uint4(pack2(s[0], s[1]), pack2(s[2], s[3]), pack2(s[4], s[5]), pack2(s[6], s[7]));
  }
  __device__ __forceinline__ static u32 add2(u32 a, u32 b) {
    u32 c;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(c) : "r"(a), "r"(0x3f803f80u), "r"(b));  // a * 1 + b: sm_80 has no add
    return c;
  }
  __device__ __forceinline__ static uint4 add(uint4 a, uint4 b) {
    return make_uint4(add2(a.x, b.x), add2(a.y, b.y), add2(a.z, b.z), add2(a.w, b.w));
  }
};

template <>
struct Lanes<f16> {
  static constexpr int count = 8;
  static constexpr int size = 2;
  __device__ __forceinline__ static float get(const void* p) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(*static_cast<const unsigned short*>(p)));
    return x;
  }
  __device__ __forceinline__ static void put(void* p, float x) {
    *static_cast<unsigned short*>(p) = (unsigned short)pack2(x, 0.f);
  }
  __device__ __forceinline__ static void accumulate(float (&sum)[8], uint4 v) {
    const u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float low, high;
      asm("{.reg .b16 l, h;\n mov.b32 {l, h}, %2;\n cvt.f32.f16 %0, l;\n cvt.f32.f16 %1, h;}"
          : "=f"(low), "=f"(high) : "r"(w[i]));
      sum[2 * i] += low;
      sum[2 * i + 1] += high;
    }
  }
  __device__ __forceinline__ static u32 pack2(float low, float high) {
    u32 w;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
    return w;
  }
  __device__ __forceinline__ static uint4 pack(const float (&s)[8]) {
    return make_uint4(pack2(s[0], s[1]), pack2(s[2], s[3]), pack2(s[4], s[5]), pack2(s[6], s[7]));
  }
  __device__ __forceinline__ static u32 add2(u32 a, u32 b) {
    u32 c;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
  }
  __device__ __forceinline__ static uint4 add(uint4 a, uint4 b) {
    return make_uint4(add2(a.x, b.x), add2(a.y, b.y), add2(a.z, b.z), add2(a.w, b.w));
  }
};

template <>
struct Lanes<f64> {
  static constexpr int count = 2;
  static constexpr int size = 8;
  __device__ __forceinline__ static double get(const void* p) { return *static_cast<const double*>(p); }
  __device__ __forceinline__ static void put(void* p, double x) { *static_cast<double*>(p) = x; }
  __device__ __forceinline__ static void accumulate(double (&sum)[2], uint4 v) {
    sum[0] += __hiloint2double(v.y, v.x);
    sum[1] += __hiloint2double(v.w, v.z);
  }
  __device__ __forceinline__ static uint4 pack(const double (&s)[2]) {
    return make_uint4(__double2loint(s[0]), __double2hiint(s[0]), __double2loint(s[1]), __double2hiint(s[1]));
  }
  __device__ __forceinline__ static uint4 add(uint4 a, uint4 b) {
    double s[2] = {0., 0.};
    accumulate(s, a);
    accumulate(s, b);
    return pack(s);
  }
};

template <class T>
using wide_t = decltype(Lanes<T>::get(nullptr));  // float, or double for fp64

// The larger of one fp32, or of each of two bf16 or fp16; of all lanes of 16 bytes; and the largest lane of 16 bytes.
__device__ __forceinline__ u32 larger(f32, u32 a, u32 b) {
  return __float_as_uint(fmaxf(__uint_as_float(a), __uint_as_float(b)));
}
__device__ __forceinline__ u32 larger(bf16, u32 a, u32 b) {
  u32 c;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
  return c;
}
__device__ __forceinline__ u32 larger(f16, u32 a, u32 b) {
  u32 c;
  asm("max.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
  return c;
}
template <class T>
__device__ __forceinline__ uint4 max_lanes(uint4 a, uint4 b) {
  return make_uint4(larger(T{}, a.x, b.x), larger(T{}, a.y, b.y), larger(T{}, a.z, b.z), larger(T{}, a.w, b.w));
}
template <class T>
__device__ __forceinline__ float top_lane(uint4 v) {
  const u32 top = larger(T{}, larger(T{}, v.x, v.y), larger(T{}, v.z, v.w));
  const unsigned short low = (unsigned short)top, high = (unsigned short)(top >> 16);
  if constexpr (Lanes<T>::size == 4) return __uint_as_float(top);
  else return fmaxf(Lanes<T>::get(&low), Lanes<T>::get(&high));
}

// ---------------------------------------------------------------------------------------------------------------------
// Parts: a tensor cut over the blocks of a grid, the same way on every rank

// This block's contiguous part of `total` bytes, cut at multiples of 16. Whatever a block writes of a part, block b of another
// rank reads as block b, so the two need to meet only each other (barrier_block with channel b), not the whole grid.
struct Part {
  u64 begin, bytes;
};
__device__ __forceinline__ Part part_of_block(u64 total) {
  const u64 chunk = (total / blocks_in_grid() + 16) / 16 * 16;
  const u64 begin = chunk * block_in_grid();
  if (begin >= total) return Part{total, 0};
  return Part{begin, total - begin < chunk ? total - begin : chunk};
}

// to[0..bytes) = the sum over all ranks of buffers[rank] + from, by the threads of this block; sums in fp32 (fp64 for f64), in
// rank order, so all ranks that compute it get the same bits. `bytes` is a multiple of the element size; 16-byte alignment
// makes it fast.
template <class T>
__device__ __forceinline__ void reduce_block(void* to, char* const* buffers, u64 from, u64 bytes, u32 world) {
  char* out = static_cast<char*>(to);
  u64 done = 0;
  if (((reinterpret_cast<u64>(out) | from) & 15) == 0) {
    for (u64 i = thread_in_block(); i < bytes / 16; i += threads_in_block()) {
      wide_t<T> sum[Lanes<T>::count] = {};
      in_flight<8>(0, world, [&](u32 peer) { return ld_stream(buffers[peer] + from + 16 * i); },
                   [&](u32, uint4 v) { Lanes<T>::accumulate(sum, v); });
      st_weak(out + 16 * i, Lanes<T>::pack(sum));
    }
    done = bytes / 16 * 16;
  }
  for (u64 at = done + (u64)Lanes<T>::size * thread_in_block(); at < bytes; at += (u64)Lanes<T>::size * threads_in_block()) {
    wide_t<T> sum = 0;
    for (u32 peer = 0; peer < world; ++peer) sum += Lanes<T>::get(buffers[peer] + from + at);
    Lanes<T>::put(out + at, sum);
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// NVLS: the switch adds and copies. Addresses lie in handle.multicast_ptr, which is 0 where there is no NVSwitch multicast.
// One load returns the sum over all ranks, one store writes to all. bf16 and fp16 sums are kept in fp32 inside the switch.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

template <class T>
struct Multimem;

#define PKB_MULTIMEM(T, REDUCE, PLAIN)                                                                                 \
  template <>                                                                                                          \
  struct Multimem<T> {                                                                                                 \
    __device__ __forceinline__ static uint4 ld_reduce(const void* p) {                                                 \
      uint4 v;                                                                                                         \
      asm volatile("multimem.ld_reduce.relaxed.sys.global.add" REDUCE " {%0,%1,%2,%3}, [%4];"                          \
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");                                  \
      return v;                                                                                                        \
    }                                                                                                                  \
    __device__ __forceinline__ static void st(void* p, uint4 v) {                                                      \
      asm volatile("multimem.st.relaxed.sys.global" PLAIN " [%0], {%1,%2,%3,%4};"                                      \
                   ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");                                       \
    }                                                                                                                  \
    __device__ __forceinline__ static void red(void* p, uint4 v) {                                                     \
      asm volatile("multimem.red.relaxed.sys.global.add" PLAIN " [%0], {%1,%2,%3,%4};"                                 \
                   ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");                                       \
    }                                                                                                                  \
  };
PKB_MULTIMEM(f32, ".v4.f32", ".v4.f32")
PKB_MULTIMEM(bf16, ".acc::f32.v4.bf16x2", ".v4.bf16x2")
PKB_MULTIMEM(f16, ".acc::f32.v4.f16x2", ".v4.f16x2")
#undef PKB_MULTIMEM

#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1206  // NCCL leaves such barriers out before: ptxas gets them wrong
// Adds to the same counter on every rank at once: one instruction in place of `world` signals. Wait with wait_reaches.
__device__ __forceinline__ void multimem_add_release(u32* multicast_counter, u32 v) {
  asm volatile("multimem.red.release.sys.global.add.u32 [%0], %1;" ::"l"(multicast_counter), "r"(v) : "memory");
}
#endif

#endif

}  // namespace pkb
