// Writes the log of a rank (events.h). Fibers run on one thread of the system at a time, so the log has their order; an access whose
// order against other ranks matters takes a number and happens under a lock of all ranks, in one step.
#include "log.h"

extern "C" {
volatile int emu_recording_now = 0;
}

namespace emu {
namespace {
constexpr unsigned REPEATS = 1 << 12;  // accesses that are remembered: a thread that repeats one says nothing new
struct Repeat { uint64_t address = 0, epoch = 0; uint32_t what = 0, site = 0; } repeats[REPEATS];
unsigned last_launch = 0;
bool acquires(const Site& s) { return s.scope == SYS && (s.order == ACQUIRE || s.order == ACQ_REL || s.order == SC); }
bool releases(const Site& s) { return s.scope == SYS && (s.order == RELEASE || s.order == ACQ_REL || s.order == SC); }
const void* site_mark(const Site& s) { return reinterpret_cast<const void*>((uintptr_t)s.id); }
void did_more() {  // the current thread does not only spin: what it reads next may be another write of the same value
  if (on_fiber) block->fibers[block->current]->last = {};
}
}  // namespace

unsigned new_launch() { return __atomic_add_fetch(&last_launch, 1, __ATOMIC_SEQ_CST); }
bool others_see(uint64_t address) {
  const Fiber& f = *block->fibers[block->current];
  if (address - (uint64_t)f.stack < STACK) return false;
  if (address - (uint64_t)block->words.data() < block->words.size() * sizeof(Words)) return false;
  if (address - (uint64_t)block->kernel->argument < block->kernel->argument_bytes) return false;
  return address - (uint64_t)places_begin >= places_bytes;
}
void record_weak(uint64_t address, unsigned bytes, bool write, unsigned proxy, const void* code, const EmuAt* at) {
  if (!on_fiber || !others_see(address)) return;
  if (write) (void)*reinterpret_cast<const volatile char*>(address);  // faults here, as the thread's own access would
  Guard guard;
  weak_touched(address, bytes, write);
  if (bytes > 4096) return record_range(address, bytes, write, at ? sites.of_instruction(*at).id : sites.of_code(code).id, UNKNOWN_EFFECT);
  tell_store();
  settle();
  did_more();
  as(current());
  Repeat& r = repeats[(address * 0x9e3779b97f4a7c15ull) >> 52];
  const uint32_t what = bytes << 4 | proxy << 1 | write;
  if (r.address == address && r.epoch == epoch && r.what == what) return;
  const uint32_t site = at ? sites.of_instruction(*at).id : sites.of_code(code).id;
  r = {address, epoch, what, site};
  if (!write || bytes > sizeof store.before)
    return put_weak(write ? R_WRITE : R_READ, mode_of(WEAK, write ? UNKNOWN_EFFECT : NO_SCOPE, proxy), bytes, site, address);
  store.address = address, store.bytes = bytes, store.site = site, store.proxy = (uint8_t)proxy, store.known = true;
  memcpy(store.before, reinterpret_cast<const void*>(address), bytes);
}
void forget_store() { store.known = false; }
void record_range(uint64_t address, uint64_t bytes, bool write, uint32_t site, unsigned effect) {
  if (!emu_recording_now) return;
  Guard guard;
  as(current());
  while (bytes) {
    const uint64_t part = bytes < 32768 ? bytes : 32768;
    put(write ? R_WRITE : R_READ, mode_of(WEAK, write ? effect : NO_SCOPE, GENERIC), (unsigned)part, site, address);
    address += part, bytes -= part;
  }
}
// The compiler calls before the access. A write takes its number now: nobody can have seen it with a smaller one. A read takes
// its number when its thread is heard of again: whatever it saw has a smaller one then.
void record_volatile(uint64_t address, unsigned bytes, bool write, const void* code) {
  if (!on_fiber || !others_see(address)) return;
  if (!write) {
    static const EmuAt look{"volatile", nullptr, 0};
    emu_poll(reinterpret_cast<const void*>(address), bytes, &look);  // it may be a spin: others run
  }
  Guard guard;
  settle();
  weak_before(address, bytes);
  if (write) {
    block->fibers[block->current]->stored = {address, bytes, code};
    take_lock();
    put_strong(1, sites.of_code(code), RELAXED, SYS, address, bytes, next_number());
    give_lock();
  } else {
    block->fibers[block->current]->pending = {address, bytes, code};
  }
}
void settle() {
  if (!emu_recording_now || !on_fiber) return;
  Fiber& f = *block->fibers[block->current];
  if (f.stored.bytes) weak_before(f.stored.address, f.stored.bytes), weak_changed(), f.stored = {};
  if (!f.pending.bytes) return;
  const PendingRead p = f.pending;
  f.pending = {};
  uint64_t value = 0;
  memcpy(&value, reinterpret_cast<const void*>(p.address), p.bytes < 8 ? p.bytes : 8);
  if ((uint64_t)f.last.address == p.address && f.last.value == value && f.last.at == p.code) return;
  f.last = {reinterpret_cast<const void*>(p.address), value, p.code};
  take_lock();
  put_strong(0, sites.of_code(p.code), RELAXED, SYS, p.address, p.bytes, next_number());
  give_lock();
}
void record_enqueue(unsigned launch, const char* name, uint64_t stream, bool blocking, unsigned blocks, unsigned threads, unsigned mode) {
  if (!recording()) return;
  Guard guard;
  const uint32_t site = sites.of_text("", 0, name);
  as(virtual_thread);
  put2(R_ENQUEUE, mode, 0, site, launch, stream | (uint64_t)blocking << 63, (uint64_t)blocks << 32 | threads);
}
void record_plain(RecordKind kind, uint64_t address) {
  if (!recording()) return;
  Guard guard;
  settle();
  did_more();
  as(current());
  put(kind, 0, 0, 0, address);
}
void record_token(RecordKind kind, uint64_t token, uint64_t stream) {
  if (!emu_recording_now) return;
  Guard guard;
  put2(kind, 0, 0, 0, token, stream, 0);
}
void record_block(RecordKind kind, const Block& b, uint64_t address, uint32_t cluster) {
  if (!recording()) return;
  Guard guard;
  as({b.kernel->launch, b.linear(), 0});
  put(kind, 0, 0, cluster, address);
}
// As a write by its first thread, after all that its threads did: another block's access has to come before it.
void record_gone(const Block& b, uint64_t address, uint64_t bytes) {
  if (!recording()) return;
  Guard guard;
  const uint32_t site = sites.of_text("", 0, "the end of a block, whose shared memory is gone then");
  for (unsigned t = 0; t < b.fibers.size(); ++t)  // copies that nobody has waited for are done by then
    if (!b.fibers[t]->copies.empty()) as({b.kernel->launch, b.linear(), t}), put(R_COPIES_CLOSE, 0, 0, 0, 0), put(R_COPIES_DONE, 0, 0, 0, 0);
  as({b.kernel->launch, b.linear(), 0});
  put(R_BARRIER_BLOCK, 0, 0, 0, 0);
  for (uint64_t at = 0; at < bytes; at += 32768)
    put(R_WRITE, mode_of(WEAK, UNKNOWN_EFFECT, GENERIC), (unsigned)(bytes - at < 32768 ? bytes - at : 32768), site, address + at);
}
void record_barrier(const Block& b, unsigned number, const uint32_t* who, const void* code) {
  if (!recording()) return;
  Guard guard;
  as({b.kernel->launch, b.linear(), b.current});
  const uint32_t site = code ? sites.of_code(code).id : 0;
  if (who) put(R_BARRIER_SOME, 0, number, site, 0, who, 8);
  else put(R_BARRIER_BLOCK, 0, number, site, 0);
}
void record_arrival(unsigned number, const void* code) {
  if (!emu_recording_now) return;
  Guard guard;
  settle();
  did_more();
  as(current());
  put(R_ARRIVE, 0, number, sites.of_code(code).id, 0);
}
void record_warp(const Block& b, unsigned warp, unsigned mask) {
  if (!emu_recording_now) return;
  Guard guard;
  as({b.kernel->launch, b.linear(), 32 * warp + (unsigned)__builtin_ctz(mask | 1u << 31)});
  put(R_BARRIER_WARP, 0, 0, 0, mask);
}
void record_copy(const void* to, const void* from, unsigned bytes, unsigned zeros, const void* code, const EmuAt* at) {
  if (!emu_recording_now) return;
  Guard guard;
  settle();
  weak_touched((uint64_t)from, bytes, false);
  did_more();
  as(current());
  put2(R_COPY, 0, bytes + zeros, at ? sites.of_instruction(*at).id : sites.of_code(code).id, (uint64_t)to, (uint64_t)from, bytes);
}
AsOperation::AsOperation(unsigned launch) { operations.push_back(launch), virtual_thread = {launch, 0, 0}; }
AsOperation::~AsOperation() {
  operations.pop_back();
  virtual_thread = {operations.empty() ? 0 : operations.back(), 0, 0};
}
}  // namespace emu

using namespace emu;
extern "C" {
// An access that is an instruction: between these two, under the lock if it is strong.
static struct {
  uint64_t number = 0;
  const EmuAt* at = nullptr;
  uint64_t address = 0;
  unsigned bytes = 0;
  bool open = false, spins = false;
} access_now;
void emu_access_begin(const void* address, unsigned bytes, int way, const EmuAt* at) {
  access_now.open = false;
  if (!on_fiber) return;
  in_fiber = false;
  log_mutex.lock();
  const Site s = sites.of_instruction(*at);
  if (s.order == WEAK) {
    record_weak((uint64_t)address, bytes, way, s.proxy, nullptr, at);
    log_mutex.unlock();
    in_fiber = true;
    return;
  }
  settle();
  weak_before((uint64_t)address, bytes);
  uint64_t value = 0;
  memcpy(&value, address, bytes < 8 ? bytes : 8);  // faults here, not under the lock
  Look& last = block->fibers[block->current]->last;
  if (way == 0 && bytes <= 8 && last.address == address && last.value == value && last.at == site_mark(s)) {
    if (acquires(s)) weak_acquire();
    access_now = {0, at, (uint64_t)address, bytes, true, true};  // the same again, as far as is known before the access
    return;
  }
  if (way && releases(s)) weak_release();
  take_lock();
  weak_before((uint64_t)address, bytes);
  access_now = {next_number(), at, (uint64_t)address, bytes, true, false};
}
void emu_access_end(int way) {
  if (!access_now.open) return;
  access_now.open = false;
  const Site s = sites.of_instruction(*access_now.at);
  uint64_t value = 0;
  memcpy(&value, reinterpret_cast<const void*>(access_now.address), access_now.bytes < 8 ? access_now.bytes : 8);
  Fiber& f = *block->fibers[block->current];
  if (access_now.spins) {
    if (f.last.value == value) {
      log_mutex.unlock();
      in_fiber = true;
      return;
    }
    // A peer has written meanwhile, and the access may have seen it: it did so before now, and that is when it counts.
    take_lock();
    access_now.number = next_number();
    memcpy(&value, reinterpret_cast<const void*>(access_now.address), access_now.bytes < 8 ? access_now.bytes : 8);
  }
  const Look now{reinterpret_cast<const void*>(access_now.address), value, site_mark(s)};
  const bool again = way == 0 && f.last.address == now.address && f.last.value == value && f.last.at == now.at;
  f.last = way == 0 ? now : Look{};
  if (!again) put_strong(way, s, s.order, s.scope, access_now.address, access_now.bytes, access_now.number);
  if (way) weak_after(access_now.address, access_now.bytes);
  give_lock();
  if (acquires(s)) weak_acquire();
  log_mutex.unlock();
  in_fiber = true;
}
void emu_fence(const EmuAt* at) {
  if (!emu_recording_now || !on_fiber) return;
  Guard guard;
  settle();
  did_more();
  const Site s = sites.of_instruction(*at);
  const bool proxy = strstr(at->what, "proxy.async") != nullptr;
  if (!proxy && s.order == WEAK && strncmp(at->what, "membar", 6) != 0 && strncmp(at->what, "__threadfence", 13) != 0) return;
  unsigned scope = s.scope ? s.scope : strstr(at->what, "sys") ? SYS : strstr(at->what, "block") || strstr(at->what, "cta") ? CTA : GPU;
  if (!proxy && scope == SYS) weak_release(), weak_acquire();
  as(current());
  put(R_FENCE, mode_of(ACQ_REL, proxy ? 0 : scope, proxy ? ASYNC : GENERIC), 0, s.id, 0);
}
}
