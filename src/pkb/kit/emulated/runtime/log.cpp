#include "log.h"

#include <sched.h>
#include <stdio.h>

namespace emu {
constexpr double LOCK_SECONDS = 10;

std::recursive_mutex log_mutex;
LogHead* head = nullptr;
SharedHead* shared_head = nullptr;
uint64_t capacity = 0, epoch = 1, written_bytes = 0;
unsigned my_rank = 0, lock_depth = 0;
Sites sites(tell_site);
Who written;
Record* last_weak = nullptr;
Store store;
thread_local Who virtual_thread;
thread_local std::vector<unsigned> operations;

// By words, or what is smaller: a store of the value that is there already is no race with another that has stored it.
void tell_store() {
  if (!store.bytes) return;
  const Store s = store;
  store.bytes = 0;
  const unsigned unit = s.bytes < 4 ? s.bytes : 4;
  const auto* now = reinterpret_cast<const unsigned char*>(s.address);
  for (unsigned at = 0; at < s.bytes; at += unit) {
    const unsigned size = s.bytes - at < unit ? s.bytes - at : unit;
    const Effect effect = !s.known ? UNKNOWN_EFFECT : memcmp(now + at, s.before + at, size) ? CHANGED : UNCHANGED;
    put_weak(R_WRITE, mode_of(WEAK, effect, s.proxy), size, s.site, s.address + at);
  }
}
void put_weak(RecordKind kind, unsigned mode, unsigned bytes, uint32_t site, uint64_t address) {
  if (last_weak && last_weak->kind == kind && last_weak->mode == mode && last_weak->site == site &&
      last_weak->address + last_weak->bytes == address && last_weak->bytes + bytes <= 4096)
    last_weak->bytes += bytes;
  else
    last_weak = put(kind, mode, bytes, site, address);
}
Record* put(RecordKind kind, unsigned mode, unsigned bytes, uint32_t site, uint64_t address, const void* more, unsigned units) {
  tell_store();
  if (kind != R_READ && kind != R_WRITE) ++epoch;
  last_weak = nullptr;
  if (!head) return nullptr;  // another thread has ended the recording meanwhile
  const uint64_t used = written_bytes, size = (1 + units) * sizeof(Record);
  if (head->used != used) head->broken = TOUCHED;  // somebody else has written into the log
  if (head->truncated || used + size > capacity) {
    head->truncated = 1;
    return nullptr;
  }
  auto* r = reinterpret_cast<Record*>(reinterpret_cast<char*>(head) + LOG_HEAD + used);
  *r = {kind, (uint8_t)mode, (uint16_t)bytes, site, address};
  if (units) memcpy(r + 1, more, units * sizeof(Record));
  head->used = written_bytes = used + size;
  return r;
}
void was_silenced() {
  std::lock_guard<std::recursive_mutex> guard(log_mutex);
  if (head && !emu_recording_now) head->broken = TOUCHED;
}
Record* put2(RecordKind kind, unsigned mode, unsigned bytes, uint32_t site, uint64_t address, uint64_t a, uint64_t b) {
  const Extension more{a, b};
  return put(kind, mode, bytes, site, address, &more, 1);
}
void tell_site(const Site& s, const char* file, int line, const char* text) {
  char all[16 * 48] = {};
  const int n = snprintf(all, sizeof all, "%.200s\n%d\n%.500s", file, line, text);
  const unsigned units = (unsigned)((n + 16) / 16);
  put(R_SITE, mode_of(s.order, s.scope, s.proxy), units, s.id, 0, all, units);
}
void as(const Who& who) {
  if (who == written) return;
  written = who;
  put(R_THREAD, 0, who.thread, who.block, who.launch);
}
Who current() {
  if (!on_fiber) return virtual_thread;
  return {block->kernel->launch, block->linear(), block->current};
}
void take_lock() {
  if (lock_depth++ || !shared_head || head->broken) return;  // whoever waited in vain once does not wait again
  const uint32_t mine = my_rank + 1;
  double since = 0;
  for (unsigned tries = 0;; ++tries) {
    uint32_t free = 0;
    if (__atomic_compare_exchange_n(&shared_head->lock, &free, mine, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return;
    if (tries < 64) continue;
    sched_yield();
    if (since == 0) since = seconds();
    if (tries % 64 == 0 && seconds() - since > LOCK_SECONDS) {  // its owner has died, or holds on to it
      head->broken = UNORDERED;
      return;
    }
  }
}
void give_lock() {
  if (--lock_depth || !shared_head) return;
  uint32_t mine = my_rank + 1;
  __atomic_compare_exchange_n(&shared_head->lock, &mine, 0u, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
uint64_t next_number() { return !shared_head ? 0 : __atomic_add_fetch(&shared_head->number, 1, __ATOMIC_SEQ_CST); }
void put_strong(int way, const Site& s, unsigned order, unsigned scope, uint64_t address, unsigned bytes, uint64_t number) {
  uint64_t value = 0;
  memcpy(&value, reinterpret_cast<const void*>(address), bytes < 8 ? bytes : 8);
  as(current());
  put2(way == 0 ? R_STRONG_READ : way == 1 ? R_STRONG_WRITE : R_STRONG_UPDATE, mode_of(order, scope, s.proxy), bytes, s.id, address, number, value);
}
}  // namespace emu
