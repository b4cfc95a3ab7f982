// NCCL's device API on the emulated GPU: LSA windows, barriers and the low-latency all-to-all, over symmetric memory.
//
// What a window is and how ranks meet is NCCL's, in the order of its accesses too, which the recorder of races sees; how it lies in
// memory is pkb.kit.nccl_device.stand_in's. GIN, CFT, and of what reduces and copies all but the copy to all ranks are not here: a
// source that uses them does not build. Multimem is `unsupported` when it is executed.
#pragma once
#include <atomic>

#include "nccl.h"

namespace cuda {
using std::memory_order;
using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;
}  // namespace cuda

// ---------------------------------------------------------------------------------------------------------------------
// Groups of threads

template <int N>
struct ncclCoopTile {
  static_assert(N <= 32 && (N & (N - 1)) == 0);
  int thread_rank() const { return emu_lane() % N; }
  constexpr int size() const { return N; }
  constexpr int num_threads() const { return N; }
  unsigned laneMask() const { return (~0u >> (32 - N)) << (emu_lane() & -N); }
  void sync() { if (N > 1) __syncwarp(laneMask()); }
};
typedef ncclCoopTile<1> ncclCoopThread;
typedef ncclCoopTile<32> ncclCoopWarp;
struct ncclCoopCta {
  int thread_rank() const { return threadIdx.x; }
  int size() const { return blockDim.x; }
  int num_threads() const { return blockDim.x; }
  void sync() { __syncthreads(); }
};
struct ncclCoopWarpSpan {
  int warp0, nWarps, id;
  ncclCoopWarpSpan(int warp0, int nWarps, int id) : warp0(warp0), nWarps(nWarps), id(id) {}
  int thread_rank() const { return threadIdx.x - 32 * warp0; }
  int size() const { return 32 * nWarps; }
  int num_threads() const { return size(); }
  void sync() { emu_sync_named(1 + id, 32 * nWarps); }
};

// ---------------------------------------------------------------------------------------------------------------------
// Communicators, teams, windows

struct ncclLsaBarrierHandle { uint32_t first, nBarriers; };  // in 32-bit words of the resources
struct ncclLLA2AHandle { uint32_t first, nSlots; };          // in 16-byte slots of the resources
struct ncclMultimemHandle { void* mcBasePtr; };
struct ncclDevComm {
  int rank, nRanks, lsaRank, lsaSize;
  char* const* resources;  // of all ranks: barriers, then low-latency slots
  ncclLsaBarrierHandle lsaBarrier;
  ncclMultimemHandle lsaMultimem;
};
typedef ncclDevComm ncclDevComm_t;
struct ncclWindow_vidmem { char* const* buffers; int64_t lsaRank; };
struct ncclTeam { int nRanks, rank, stride; };
typedef ncclTeam ncclTeam_t;
struct ncclTeamTagWorld {};
struct ncclTeamTagLsa {};

inline ncclTeam ncclTeamWorld(const ncclDevComm& comm) { return {comm.nRanks, comm.rank, 1}; }
inline ncclTeam ncclTeamLsa(const ncclDevComm& comm) { return {comm.lsaSize, comm.lsaRank, 1}; }
inline int ncclTeamRankToWorld(const ncclDevComm& comm, ncclTeam team, int rank) { return comm.rank + (rank - team.rank) * team.stride; }
inline int ncclTeamRankToLsa(const ncclDevComm& comm, ncclTeam team, int rank) { return comm.lsaRank + (rank - team.rank) * team.stride; }
inline void* ncclGetLsaPointer(ncclWindow_t w, size_t offset, int peer) { return w->buffers[peer] + offset; }
inline void* ncclGetLocalPointer(ncclWindow_t w, size_t offset) { return w->buffers[w->lsaRank] + offset; }
inline void* ncclGetPeerPointer(ncclWindow_t w, size_t offset, int peer) { return w->buffers[peer] + offset; }
inline void* ncclGetPeerPointer(ncclWindow_t w, size_t offset, ncclTeam team, int peer) {
  return w->buffers[w->lsaRank + (peer - team.rank) * team.stride] + offset;
}
[[noreturn]] inline void* ncclGetLsaMultimemPointer(ncclWindow_t, size_t, const ncclDevComm&) { emu_unsupported("ncclGetLsaMultimemPointer"); }
[[noreturn]] inline void* ncclGetMultimemPointer(ncclWindow_t, size_t, ncclMultimemHandle) { emu_unsupported("ncclGetMultimemPointer"); }

template <class T>
struct ncclSymPtr {
  ncclWindow_t window;
  size_t offset;
  ncclSymPtr(ncclWindow_t window = nullptr, size_t offset = 0) : window(window), offset(offset) {}
  T* localPtr() const { return (T*)ncclGetLocalPointer(window, offset); }
  T* lsaPtr(int peer) const { return (T*)ncclGetLsaPointer(window, offset, peer); }
  T* peerPtr(int peer) const { return (T*)ncclGetPeerPointer(window, offset, peer); }
  T* peerPtr(ncclTeam team, int peer) const { return (T*)ncclGetPeerPointer(window, offset, team, peer); }
};
template <class T, class I> inline ncclSymPtr<T> operator+(ncclSymPtr<T> p, I d) { return {p.window, p.offset + d * sizeof(T)}; }

// To the window of every rank.
template <class T, class Coop, class Count>
inline void ncclLsaCopy(Coop coop, T* from, ncclWindow_t w, size_t offset, Count count, const ncclDevComm& comm) {
  for (int peer = 0; peer < comm.lsaSize; ++peer)
    for (Count i = coop.thread_rank(); i < count; i += coop.size()) ((T*)ncclGetLsaPointer(w, offset, peer))[i] = from[i];
}

namespace emu::nccl {
inline bool releases(std::memory_order o) { return o != std::memory_order_relaxed && o != std::memory_order_acquire; }
inline bool acquires(std::memory_order o) { return o != std::memory_order_relaxed && o != std::memory_order_release; }
}  // namespace emu::nccl

// ---------------------------------------------------------------------------------------------------------------------
// Barriers: a word for each, the count of its owner, then a word for each and each rank, set by that rank

template <class Coop>
struct ncclLsaBarrierSession {
  ncclLsaBarrierSession(Coop coop, const ncclDevComm& comm, ncclTeam team, ncclLsaBarrierHandle handle, uint32_t index,
                        bool multimem = false, ncclMultimemHandle = {})
      : coop(coop), comm(comm), team(team), handle(handle), index(index) {
    if (multimem) emu_unsupported("ncclLsaBarrierSession with multimem");
    if (index >= handle.nBarriers) emu_fault("an LSA barrier beyond those that were made", words(comm.lsaRank) + index);
    epoch = words(comm.lsaRank)[index];
  }
  ncclLsaBarrierSession(Coop coop, const ncclDevComm& comm, ncclTeamTagLsa, uint32_t index, bool multimem = false)
      : ncclLsaBarrierSession(coop, comm, ncclTeamLsa(comm), comm.lsaBarrier, index, multimem) {}
  ncclLsaBarrierSession(const ncclLsaBarrierSession&) = delete;
  ~ncclLsaBarrierSession() {
    if (coop.thread_rank() == 0) words(comm.lsaRank)[index] = epoch;
    coop.sync();
  }
  void arrive(Coop, cuda::memory_order order, EMU_HERE) {
    coop.sync();
    const EmuAt fence{"fence.acq_rel.sys", emu_file, emu_line}, at{"st.relaxed.sys.u32", emu_file, emu_line};
    if (team.nRanks > 1 && emu::nccl::releases(order)) EMU_FENCE(fence);
    for (int i = coop.thread_rank(); i < team.nRanks - 1; i += coop.size()) {
      const uint32_t next[1] = {epoch + 1};
      emu::ptx::store((char*)inbox(i + (team.rank <= i), team.rank), next, at);
    }
  }
  void wait(Coop, cuda::memory_order order, EMU_HERE) {
    const EmuAt at{emu::nccl::acquires(order) ? "ld.acquire.sys.u32" : "ld.relaxed.sys.u32", emu_file, emu_line};
    for (int i = coop.thread_rank(); i < team.nRanks - 1; i += coop.size()) {
      uint32_t got[1];
      do emu::ptx::load(got, (const char*)inbox(team.rank, i + (team.rank <= i)), at, true);
      while ((int32_t)(got[0] - (epoch + 1)) < 0);
    }
    epoch += 1;
    coop.sync();
  }
  void sync(Coop coop, cuda::memory_order order, EMU_HERE) {
    arrive(coop, order, emu_file, emu_line);
    wait(coop, order, emu_file, emu_line);
  }

 private:
  uint32_t* words(int lsaRank) const { return (uint32_t*)comm.resources[lsaRank] + handle.first; }
  uint32_t* inbox(int owner, int peer) const {
    return words(ncclTeamRankToLsa(comm, team, owner)) + handle.nBarriers + index * team.nRanks + peer;
  }
  Coop coop;
  const ncclDevComm& comm;
  ncclTeam team;
  ncclLsaBarrierHandle handle;
  uint32_t index, epoch;
};

// ---------------------------------------------------------------------------------------------------------------------
// Low-latency all-to-all: 8 bytes of data in a slot of 16, beside the epoch that says that they are there

template <class Coop>
struct ncclLLA2ASession {
  ncclLLA2ASession(Coop coop, const ncclDevComm& comm, ncclTeam team, ncclLLA2AHandle handle, uint32_t block, int maxElts,
                   bool multimem = false, ncclMultimemHandle = {})
      : coop(coop), comm(comm), team(team), handle(handle), block(block), pitch(maxElts) {
    if (multimem) emu_unsupported("ncclLLA2ASession with multimem");
    epoch = line(comm.lsaRank)->x + 2;
  }
  ncclLLA2ASession(const ncclLLA2ASession&) = delete;
  ~ncclLLA2ASession() {
    if (coop.thread_rank() == 0) line(comm.lsaRank)->x = epoch - 2;
    coop.sync();
  }
  template <class T>
  void send(int peer, int elt, T data, EMU_HERE) {
    const EmuAt at{"st.relaxed.sys.v4.u32", emu_file, emu_line};
    uint32_t words[WORDS<T>] = {};
    memcpy(words, &data, sizeof data);
    for (unsigned u = 0; u < WORDS<T> / 2; ++u) {
      const uint32_t made[4] = {words[2 * u], epoch, words[2 * u + 1], epoch};
      emu::ptx::store((char*)slot(ncclTeamRankToLsa(comm, team, peer), elt + u * pitch), made, at);
    }
  }
  template <class T>
  void bcast(int elt, T data, EMU_HERE) {
    for (int peer = 0; peer < team.nRanks; ++peer) send(peer, elt, data, emu_file, emu_line);
  }
  template <class T>
  T recv(int elt, EMU_HERE) {
    const EmuAt at{"ld.relaxed.sys.v4.u32", emu_file, emu_line};
    uint32_t words[WORDS<T>];
    for (unsigned u = 0; u < WORDS<T> / 2; ++u) {
      uint32_t got[4];
      do emu::ptx::load(got, (const char*)slot(comm.lsaRank, elt + u * pitch), at, true);
      while (got[1] != epoch || got[3] != epoch);
      words[2 * u] = got[0], words[2 * u + 1] = got[2];
    }
    T data;
    memcpy(&data, words, sizeof data);
    return data;
  }
  void endEpoch(Coop) {
    coop.sync();
    epoch += 1;
  }

 private:
  template <class T> static constexpr unsigned WORDS = (sizeof(T) + 7) / 8 * 2;
  uint4* line(int lsaRank) const { return (uint4*)comm.resources[lsaRank] + handle.first + block * (1 + 2 * handle.nSlots); }
  uint4* slot(int lsaRank, int elt) const {
    if ((uint32_t)elt >= handle.nSlots) emu_fault("a low-latency slot beyond those that were made", line(lsaRank));
    return line(lsaRank) + 1 + (epoch & 1) * handle.nSlots + elt;
  }
  Coop coop;
  const ncclDevComm& comm;
  ncclTeam team;
  ncclLLA2AHandle handle;
  uint32_t block;
  int pitch;
  uint32_t epoch;
};
