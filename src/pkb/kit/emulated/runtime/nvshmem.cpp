// NVSHMEM's symmetric heaps: which allocations there are, and where each PE's part of them is mapped. The host adds them
// before a kernel can hold their address, and none is ever taken away.
#include <stdint.h>

#include <atomic>
#include <vector>

namespace {
struct Piece {
  const char* mine;
  uint64_t bytes;
  std::vector<char*> all;
};
Piece pieces[1024];
std::atomic<unsigned> piece_count{0};
std::vector<uint64_t*> barrier_words;
}  // namespace

extern "C" {
struct EmuHeaps {
  int me, world;
  uint64_t* const* barriers;
};
EmuHeaps emu_heaps;

void emu_heaps_start(int me, int world, const uint64_t* barriers) {
  barrier_words.clear();
  for (int pe = 0; pe < world; ++pe) barrier_words.push_back((uint64_t*)barriers[pe]);
  emu_heaps = {me, world, barrier_words.data()};
}
int emu_heap_add(const uint64_t* addresses, uint64_t bytes) {
  const unsigned n = piece_count;
  if (n == sizeof pieces / sizeof *pieces) return 1;
  pieces[n] = {(char*)addresses[emu_heaps.me], bytes, {}};
  for (int pe = 0; pe < emu_heaps.world; ++pe) pieces[n].all.push_back((char*)addresses[pe]);
  piece_count = n + 1;
  return 0;
}
void* emu_heap_address(const void* symmetric, int pe) {
  for (unsigned n = 0; n < piece_count; ++n) {
    const uint64_t offset = (const char*)symmetric - pieces[n].mine;
    if (offset < pieces[n].bytes && pe >= 0 && pe < emu_heaps.world) return pieces[n].all[pe] + offset;
  }
  return nullptr;
}
}
