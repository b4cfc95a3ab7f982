// Fibers: a CUDA thread has a stack of its own and runs until it waits, or until a timer finds it running for too long.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <vector>

struct EmuAt { const char* what; const char* file; int line; };

namespace emu {
constexpr size_t STACK = 256 << 10;  // of addresses: pages are taken as they are touched
constexpr uint64_t CANARY = 0x5afe57ac5afe57acull;

#if defined(__x86_64__)  // without a system call, which swapcontext makes twice
using Context = void*;
extern "C" void emu_switch(Context* from, Context* to);
inline void prepare(Context* c, char* stack, void (*entry)()) {
  void** top = reinterpret_cast<void**>((uintptr_t)(stack + STACK) & ~(uintptr_t)63);
  *--top = nullptr;  // where `entry` would return to
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  *c = top;
}
#else
using Context = ucontext_t;
inline void emu_switch(Context* from, Context* to) { swapcontext(from, to); }
inline void prepare(Context* c, char* stack, void (*entry)()) {
  getcontext(c);
  c->uc_stack.ss_sp = stack, c->uc_stack.ss_size = STACK, c->uc_link = nullptr;
  makecontext(c, entry, 0);
}
#endif

struct Copy { void* to; const void* from; unsigned bytes, zeros; };  // `to` null: the end of a group
struct Look { const void* address = nullptr; uint64_t value = 0; const void* at = nullptr; };
struct PendingRead { uint64_t address = 0; unsigned bytes = 0; const void* code = nullptr; };  // volatile, not recorded yet
struct BulkStore {  // from shared memory, late; `to` null: the end of a group
  void* to = nullptr;
  const char* from = nullptr;
  unsigned bytes = 0;
  std::vector<char> read;  // what was read of it already, or nothing
  EmuAt at{};
};
struct Fiber {
  Context context;
  char* stack = nullptr;
  bool done = true, polled = false;
  double held = 0;                 // until then it stays where it is, and others go on
  bool spins = false;              // its last look showed what the one before had shown
  const unsigned* gate = nullptr;  // the generation of the barrier it waits at
  unsigned generation = 0;
  Look look, last;  // for those who ask what it waits for; the last strong read that was recorded
  Look seen[8];     // where a peer is late: one thread may wait for several flags in turn
  unsigned next_seen = 0;
  unsigned writes = 0;  // that anybody had made at its last volatile look
  PendingRead pending;
  PendingRead stored;              // volatile, in weak execution: not visible to others yet
  std::vector<Copy> copies;
  std::vector<BulkStore> stores;
  unsigned arrived_at = 0;         // the generation of its cluster's barrier, + 1; 0: it has not arrived
  int meets = 0;                   // the line of an __activemask where it is
  unsigned met = 0;                // lanes that it found there
  bool unchanged(const void* address, uint64_t now) {  // since this thread looked there before
    for (Look& before : seen)
      if (before.address == address) {
        const bool same = before.value == now;
        before.value = now;
        return same;
      }
    seen[next_seen++ % 8] = {address, now, nullptr};
    return false;
  }
  bool blocked() const { return gate && *gate == generation; }
};

inline std::vector<Fiber*>& spare_fibers() { static std::vector<Fiber*> all; return all; }
inline Fiber* take_fiber(void (*entry)()) {
  auto& spare = spare_fibers();
  if (spare.empty()) {
    constexpr int COUNT = 64;
    char* slab = static_cast<char*>(mmap(nullptr, COUNT * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (slab == MAP_FAILED) return nullptr;
    for (int i = COUNT; i-- > 0;) {
      Fiber* f = new Fiber;
      f->stack = slab + i * STACK;
      *reinterpret_cast<uint64_t*>(f->stack) = CANARY;
      prepare(&f->context, f->stack, entry);
      spare.push_back(f);
    }
  }
  Fiber* f = spare.back();
  spare.pop_back();
  for (Look& before : f->seen) before = {};
  f->done = false, f->held = 0, f->polled = f->spins = false, f->gate = nullptr, f->look = f->last = {}, f->next_seen = 0, f->pending = f->stored = {}, f->copies.clear(), f->stores.clear(), f->meets = 0, f->arrived_at = 0;
  return f;
}
}  // namespace emu
