// What g++ calls before plain accesses under -fsanitize=thread: functions of our own in place of libtsan's.
#include <optional>

#include "log.h"

using namespace emu;
namespace {
struct Atomically {  // in weak execution: an atomic access of C++, as strong as can be
  const uint64_t address;
  const unsigned bytes;
  std::optional<Guard> guard;
  Atomically(const volatile void* p, unsigned bytes) : address((uint64_t)p), bytes(bytes) {
    if (!weak_covers(address) || !on_fiber) return;  // not the guard of a static variable
    guard.emplace();
    settle(), weak_release(), take_lock(), weak_before(address, bytes);
  }
  ~Atomically() {
    if (guard) weak_after(address, bytes), give_lock(), weak_acquire();
  }
};
void hold_before(const void* address) {  // a volatile write
  if (!holds) return;
  in_fiber = false;
  may_hold((uint64_t)address);
  in_fiber = true;
}
}  // namespace
#define SEEN(NAME, BYTES, WRITE)                                                                                       \
  void __tsan_##NAME(void* p) {                                                                                        \
    if (__builtin_expect(emu_recording_now, 0)) record_weak((uint64_t)p, BYTES, WRITE, GENERIC, __builtin_return_address(0), nullptr); \
    else if (WRITE) ++plain_writes;                                                                                    \
  }
#define SEEN_VOLATILE(NAME, BYTES, WRITE)                                                                              \
  void __tsan_##NAME(void* p) {                                                                                        \
    if (__builtin_expect(emu_recording_now, 0)) record_volatile((uint64_t)p, BYTES, WRITE, __builtin_return_address(0)); \
    else if (on_fiber) (WRITE) ? hold_before(p) : look_again(p, BYTES);                                                               \
  }
#define SEEN_BOTH(N)                                                                                                   \
  SEEN(read##N, N, false) SEEN(write##N, N, true) SEEN(unaligned_read##N, N, false) SEEN(unaligned_write##N, N, true)  \
  SEEN_VOLATILE(volatile_read##N, N, false) SEEN_VOLATILE(volatile_write##N, N, true)                                  \
  SEEN_VOLATILE(unaligned_volatile_read##N, N, false) SEEN_VOLATILE(unaligned_volatile_write##N, N, true)
#define SAFE const Atomically safe(p, sizeof *p)
#define ATOMICS(N, T)                                                                                                  \
  T __tsan_atomic##N##_load(const volatile T* p, int) { SAFE; return __atomic_load_n(p, __ATOMIC_SEQ_CST); }           \
  void __tsan_atomic##N##_store(volatile T* p, T v, int) { SAFE; __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }           \
  T __tsan_atomic##N##_exchange(volatile T* p, T v, int) { SAFE; return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##N##_fetch_add(volatile T* p, T v, int) { SAFE; return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##N##_fetch_sub(volatile T* p, T v, int) { SAFE; return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##N##_fetch_and(volatile T* p, T v, int) { SAFE; return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##N##_fetch_or(volatile T* p, T v, int) { SAFE; return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }   \
  T __tsan_atomic##N##_fetch_xor(volatile T* p, T v, int) { SAFE; return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##N##_fetch_nand(volatile T* p, T v, int) { SAFE; return __atomic_fetch_nand(p, v, __ATOMIC_SEQ_CST); }\
  int __tsan_atomic##N##_compare_exchange_strong(volatile T* p, T* e, T v, int, int) { SAFE;                           \
    return __atomic_compare_exchange_n(p, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                            \
  }                                                                                                                    \
  int __tsan_atomic##N##_compare_exchange_weak(volatile T* p, T* e, T v, int, int) { SAFE;                             \
    return __atomic_compare_exchange_n(p, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                            \
  }                                                                                                                    \
  T __tsan_atomic##N##_compare_exchange_val(volatile T* p, T e, T v, int, int) { SAFE;                                 \
    __atomic_compare_exchange_n(p, &e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                                  \
    return e;                                                                                                          \
  }

extern "C" {
SEEN_BOTH(1) SEEN_BOTH(2) SEEN_BOTH(4) SEEN_BOTH(8) SEEN_BOTH(16)
ATOMICS(8, uint8_t) ATOMICS(16, uint16_t) ATOMICS(32, uint32_t) ATOMICS(64, uint64_t)
void __tsan_read_range(void* p, unsigned long bytes) {
  if (__builtin_expect(emu_recording_now, 0)) record_weak((uint64_t)p, (unsigned)bytes, false, GENERIC, __builtin_return_address(0), nullptr);
}
void __tsan_write_range(void* p, unsigned long bytes) {
  if (__builtin_expect(emu_recording_now, 0)) record_weak((uint64_t)p, (unsigned)bytes, true, GENERIC, __builtin_return_address(0), nullptr);
}
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
