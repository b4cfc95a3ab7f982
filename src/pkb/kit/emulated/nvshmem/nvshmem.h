// NVSHMEM's device functions on the emulated GPU, over its symmetric memory. Rewritten like a candidate's own text, so that
// what they do to memory is recorded. Puts and gets are plain accesses, as over NVLink. Signals and waits are relaxed,
// as in the library (3.4.5: volatile stores and loads): put_signal has the fence before its signal, and who has waited needs one
// of its own before it reads what was put. Without it an H200 read old data, from its L1 as it seems. A barrier orders what comes before and
// after it, as its documentation promises: who relies on that is not accused.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stddef.h>
#include <stdint.h>

enum { NVSHMEM_CMP_EQ = 0, NVSHMEM_CMP_NE, NVSHMEM_CMP_GT, NVSHMEM_CMP_LE, NVSHMEM_CMP_LT, NVSHMEM_CMP_GE };
enum { NVSHMEM_SIGNAL_SET = 9, NVSHMEM_SIGNAL_ADD = 10 };

extern "C" {
struct EmuHeaps {  // in runtime/nvshmem.cpp
  int me, world;
  uint64_t* const* barriers;  // of all PEs: who has come how often, and how often this one has
};
extern EmuHeaps emu_heaps;
void* emu_heap_address(const void* symmetric, int pe);  // null where it is none
}

__device__ inline int nvshmem_my_pe() { return emu_heaps.me; }
__device__ inline int nvshmem_n_pes() { return emu_heaps.world; }
__device__ inline void* nvshmem_ptr(const void* symmetric, int pe) { return emu_heap_address(symmetric, pe); }

namespace emu_nvshmem {
struct Thread {
  __device__ static unsigned number() { return 0; }
  __device__ static unsigned count() { return 1; }
  __device__ static void meet() {}
};
struct Warp {
  __device__ static unsigned number() { return emu_lane(); }
  __device__ static unsigned count() { return 32; }
  __device__ static void meet() { __syncwarp(); }
};
struct Block {
  __device__ static unsigned number() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
  __device__ static unsigned count() { return blockDim.x * blockDim.y * blockDim.z; }
  __device__ static void meet() { __syncthreads(); }
};
template <class T>
__device__ inline T* there(const T* symmetric, int pe) {
  void* found = emu_heap_address(symmetric, pe);
  if (!found) emu_fault("NVSHMEM was given an address that is not symmetric", symmetric);
  return (T*)found;
}
template <class Group>
__device__ inline void copy(char* to, const char* from, size_t bytes) {
  Group::meet();
  const size_t wide = ((size_t)to | (size_t)from) % 16 ? 0 : bytes / 16;
  for (size_t i = Group::number(); i < wide; i += Group::count()) ((uint4*)to)[i] = ((const uint4*)from)[i];
  for (size_t i = 16 * wide + Group::number(); i < bytes; i += Group::count()) to[i] = from[i];
  Group::meet();
}
template <class Group>
__device__ inline void put(void* to, const void* from, size_t bytes, int pe) {
  copy<Group>((char*)there(to, pe), (const char*)from, bytes);
}
template <class Group>
__device__ inline void get(void* to, const void* from, size_t bytes, int pe) {
  copy<Group>((char*)to, (const char*)there(from, pe), bytes);
}
__device__ inline void fence() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
__device__ inline void signal(uint64_t* at, uint64_t value, int operation, int pe) {
  uint64_t* remote = there(at, pe);
  if (operation == NVSHMEM_SIGNAL_SET) asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(remote), "l"(value) : "memory");
  else asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(remote), "l"(value) : "memory");
}
template <class Group>
__device__ inline void put_signal(void* to, const void* from, size_t bytes, uint64_t* at, uint64_t value, int operation, int pe) {
  put<Group>(to, from, bytes, pe);
  if (Group::number() == 0) fence(), signal(at, value, operation, pe);
  Group::meet();
}
template <class T>
__device__ inline bool holds(T found, int how, T value) {
  switch (how) {
    case NVSHMEM_CMP_EQ: return found == value;
    case NVSHMEM_CMP_NE: return found != value;
    case NVSHMEM_CMP_GT: return found > value;
    case NVSHMEM_CMP_LE: return found <= value;
    case NVSHMEM_CMP_LT: return found < value;
    default: return found >= value;
  }
}
template <class T>
__device__ inline T look(const T* at) {
  if constexpr (sizeof(T) == 8) {
    uint64_t word;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(at) : "memory");
    return (T)word;
  } else {
    uint32_t word;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(at) : "memory");
    return (T)word;
  }
}
template <class T>
__device__ inline T wait(const T* at, int how, T value) {
  T found = look(at);
  while (!holds(found, how, value)) found = look(at);
  return found;
}
template <class Group>
__device__ inline void meet_all() {  // by one group of a grid at a time, as the interface asks
  Group::meet();
  if (Group::number() == 0) {
    const int me = emu_heaps.me, world = emu_heaps.world;
    uint64_t* own = emu_heaps.barriers[me];
    const uint64_t now = own[world] + 1;
    own[world] = now;
    fence();
    for (int pe = 0; pe < world; ++pe) asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(emu_heaps.barriers[pe] + me), "l"(now) : "memory");
    for (int pe = 0; pe < world; ++pe) wait<uint64_t>(own + pe, NVSHMEM_CMP_GE, now);
    fence();
  }
  Group::meet();
}
}  // namespace emu_nvshmem

__device__ inline void nvshmem_fence() { emu_nvshmem::fence(); }
__device__ inline void nvshmem_quiet() { emu_nvshmem::fence(); }
__device__ inline void nvshmem_barrier_all() { emu_nvshmem::meet_all<emu_nvshmem::Thread>(); }
__device__ inline void nvshmem_sync_all() { emu_nvshmem::meet_all<emu_nvshmem::Thread>(); }
__device__ inline uint64_t nvshmem_signal_fetch(uint64_t* at) { return emu_nvshmem::look(at); }
__device__ inline uint64_t nvshmem_signal_wait_until(uint64_t* at, int how, uint64_t value) { return emu_nvshmem::wait(at, how, value); }

#define EMU_NVSHMEM_GROUP(prefix, suffix, Group)                                                                       \
  __device__ inline void prefix##putmem##suffix(void* to, const void* from, size_t bytes, int pe) {                    \
    emu_nvshmem::put<emu_nvshmem::Group>(to, from, bytes, pe);                                                         \
  }                                                                                                                    \
  __device__ inline void prefix##getmem##suffix(void* to, const void* from, size_t bytes, int pe) {                    \
    emu_nvshmem::get<emu_nvshmem::Group>(to, from, bytes, pe);                                                         \
  }                                                                                                                    \
  __device__ inline void prefix##putmem_signal##suffix(void* to, const void* from, size_t bytes, uint64_t* at, uint64_t value, int operation, int pe) { \
    emu_nvshmem::put_signal<emu_nvshmem::Group>(to, from, bytes, at, value, operation, pe);                            \
  }
EMU_NVSHMEM_GROUP(nvshmem_, , Thread)
EMU_NVSHMEM_GROUP(nvshmem_, _nbi, Thread)

#define EMU_NVSHMEM_TYPED(prefix, NAME, T, suffix, Group)                                                              \
  __device__ inline void prefix##NAME##_put##suffix(T* to, const T* from, size_t count, int pe) {                      \
    emu_nvshmem::put<emu_nvshmem::Group>(to, from, count * sizeof(T), pe);                                             \
  }                                                                                                                    \
  __device__ inline void prefix##NAME##_get##suffix(T* to, const T* from, size_t count, int pe) {                      \
    emu_nvshmem::get<emu_nvshmem::Group>(to, from, count * sizeof(T), pe);                                             \
  }                                                                                                                    \
  __device__ inline void prefix##NAME##_put_signal##suffix(T* to, const T* from, size_t count, uint64_t* at, uint64_t value, int operation, int pe) { \
    emu_nvshmem::put_signal<emu_nvshmem::Group>(to, from, count * sizeof(T), at, value, operation, pe);                \
  }
#define EMU_NVSHMEM_TYPE(NAME, T)                                                                                      \
  EMU_NVSHMEM_TYPED(nvshmem_, NAME, T, , Thread)                                                                       \
  EMU_NVSHMEM_TYPED(nvshmem_, NAME, T, _nbi, Thread)                                                                   \
  __device__ inline void nvshmem_##NAME##_p(T* to, T value, int pe) { *emu_nvshmem::there(to, pe) = value; }           \
  __device__ inline T nvshmem_##NAME##_g(const T* from, int pe) { return *emu_nvshmem::there(from, pe); }
#define EMU_NVSHMEM_TYPES(DEFINE)                                                                                      \
  DEFINE(float, float) DEFINE(double, double) DEFINE(half, half) DEFINE(bfloat16, __nv_bfloat16) DEFINE(char, char)    \
  DEFINE(schar, signed char) DEFINE(short, short) DEFINE(int, int) DEFINE(long, long) DEFINE(longlong, long long)      \
  DEFINE(uchar, unsigned char) DEFINE(ushort, unsigned short) DEFINE(uint, unsigned) DEFINE(ulong, unsigned long)      \
  DEFINE(ulonglong, unsigned long long) DEFINE(int8, int8_t) DEFINE(int16, int16_t) DEFINE(int32, int32_t)             \
  DEFINE(int64, int64_t) DEFINE(uint8, uint8_t) DEFINE(uint16, uint16_t) DEFINE(uint32, uint32_t)                      \
  DEFINE(uint64, uint64_t) DEFINE(size, size_t)
EMU_NVSHMEM_TYPES(EMU_NVSHMEM_TYPE)

#define EMU_NVSHMEM_ATOMIC(NAME, T, Word)                                                                              \
  __device__ inline T nvshmem_##NAME##_atomic_fetch_add(T* at, T value, int pe) { return (T)atomicAdd_system((Word*)emu_nvshmem::there(at, pe), (Word)value); } \
  __device__ inline void nvshmem_##NAME##_atomic_add(T* at, T value, int pe) { nvshmem_##NAME##_atomic_fetch_add(at, value, pe); } \
  __device__ inline T nvshmem_##NAME##_atomic_fetch_inc(T* at, int pe) { return nvshmem_##NAME##_atomic_fetch_add(at, 1, pe); } \
  __device__ inline void nvshmem_##NAME##_atomic_inc(T* at, int pe) { nvshmem_##NAME##_atomic_fetch_add(at, 1, pe); }  \
  __device__ inline T nvshmem_##NAME##_atomic_fetch(const T* at, int pe) { return (T)atomicAdd_system((Word*)emu_nvshmem::there(at, pe), (Word)0); } \
  __device__ inline T nvshmem_##NAME##_atomic_swap(T* at, T value, int pe) { return (T)atomicExch_system((Word*)emu_nvshmem::there(at, pe), (Word)value); } \
  __device__ inline void nvshmem_##NAME##_atomic_set(T* at, T value, int pe) { nvshmem_##NAME##_atomic_swap(at, value, pe); } \
  __device__ inline T nvshmem_##NAME##_atomic_compare_swap(T* at, T expect, T value, int pe) {                         \
    return (T)atomicCAS_system((Word*)emu_nvshmem::there(at, pe), (Word)expect, (Word)value);                          \
  }                                                                                                                    \
  __device__ inline void nvshmem_##NAME##_wait_until(T* at, int how, T value) { emu_nvshmem::wait(at, how, value); }
EMU_NVSHMEM_ATOMIC(int, int, unsigned)
EMU_NVSHMEM_ATOMIC(uint, unsigned, unsigned)
EMU_NVSHMEM_ATOMIC(int32, int32_t, unsigned)
EMU_NVSHMEM_ATOMIC(uint32, uint32_t, unsigned)
EMU_NVSHMEM_ATOMIC(long, long, unsigned long long)
EMU_NVSHMEM_ATOMIC(ulong, unsigned long, unsigned long long)
EMU_NVSHMEM_ATOMIC(longlong, long long, unsigned long long)
EMU_NVSHMEM_ATOMIC(ulonglong, unsigned long long, unsigned long long)
EMU_NVSHMEM_ATOMIC(int64, int64_t, unsigned long long)
EMU_NVSHMEM_ATOMIC(uint64, uint64_t, unsigned long long)
EMU_NVSHMEM_ATOMIC(size, size_t, unsigned long long)
