// Where the shared memory of blocks lies. A block has a slot of the arena for as long as it runs: what is static from the slot's beginning
// upwards, and what is dynamic so that it ends where pages begin that nobody may touch. An access beyond what the launch asked for faults there.
// A GPU gives a kernel without static shared memory a multiple of 1 KB as the first address, and kernels rely on it. So up to a
// KB lies between the last byte asked for and those pages: whether somebody has written there is seen when the block ends.
#include <stdio.h>
#include <sys/mman.h>

#include "runtime.h"

namespace emu {
namespace {
constexpr size_t ALIGNED = 1024, STATIC_MOST = 48 << 10;
size_t rounded(size_t bytes) { return (bytes + ALIGNED - 1) & ~(ALIGNED - 1); }

[[noreturn]] void fail_beyond(const char* how, const Block& b, const void* address, const void* code) {
  char text[400];
  snprintf(text, sizeof text,
           "illegal memory access: byte %zu of dynamic shared memory %s, and the launch asked for %zu bytes. Ask for all that the kernel "
           "uses: `shared=` of the kit's launch, the third value of <<<...>>>",
           (size_t)(static_cast<const char*>(address) - b.dynamic), how, b.kernel->shared);
  fail(text, address, code);
}
}  // namespace

void prepare_places() {
  if (emu_shared_arena) return;
  void* place = mmap(nullptr, ARENA_SLOTS * SLOT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) fail("no memory for shared memory", nullptr);
  emu_shared_arena = static_cast<char*>(place);
}
void make_slot(Block& b, unsigned slot) {
  b.slot = slot;
  b.shared = emu_shared_arena + slot * SLOT;
  if (mprotect(b.shared, SLOT - GUARD, PROT_READ | PROT_WRITE)) fail("no memory for shared memory", nullptr);
}
void begin_shared(Block& b) {
  const size_t bytes = rounded(b.kernel->shared);
  b.dynamic = b.shared + SLOT - GUARD - bytes;
  memset(b.dynamic, 0xff, bytes);  // NaN: nothing may rely on zeroed shared memory
  if (b.kernel->together() > 1) memset(b.shared, 0xff, STATIC_MOST);
}
void end_shared(const Block& b) {
  const Kernel& k = *b.kernel;
  if (k.used) record_gone(b, (uint64_t)b.shared, k.used);
  if (k.shared) record_gone(b, (uint64_t)b.dynamic, k.shared);
  memset(b.shared, 0xff, k.used), memset(b.dynamic, 0xff, k.shared);  // who looks afterwards finds NaN
}
void check_shared(const Block& b) {
  for (const char* p = b.dynamic + b.kernel->shared; p < b.shared + SLOT - GUARD; ++p)
    if (*p != (char)0xff) fail_beyond("was written (seen when the block ended)", b, p, nullptr);
}
void explain_fault(const void* address, const void* code) {
  const size_t offset = (size_t)(static_cast<const char*>(address) - emu_shared_arena);
  if (block && offset < ARENA_SLOTS * SLOT && offset / SLOT == block->slot && offset % SLOT >= SLOT - GUARD)
    fail_beyond("is accessed", *block, address, code);
}
}  // namespace emu
