// What cuda::barrier, cuda::pipeline and the copies of cooperative_groups stand on: cp.async and mbarriers, with the candidate's lines.
#pragma once
#include "emu.h"

namespace emu {
// The share of one of `count` threads. Which of them copies what is nobody's business: they all wait.
inline void copy_share(void* to, const void* from, size_t bytes, unsigned rank, unsigned count, const EmuAt& at) {
  constexpr size_t PIECE = 16, MOST = 32768;
  const size_t each = (bytes + PIECE * count - 1) / (PIECE * count) * PIECE, end = bytes < (rank + 1) * each ? bytes : (rank + 1) * each;
  for (size_t i = rank * each; i < end; i += MOST)
    emu_copy_later(static_cast<char*>(to) + i, static_cast<const char*>(from) + i, (unsigned)(end - i < MOST ? end - i : MOST), 0, &at);
}
struct Mbarrier {  // in shared memory; arrivals release and waits acquire for the block
  alignas(8) uint64_t word;
  char* place() const { return (char*)&word; }
  uint64_t arrive(unsigned count, int bytes, const char* file, int line) const {
    return ptx::mbarrier_arrive(place(), count, bytes, {"mbarrier.arrive.release.cta", file, line});
  }
  void arrive_when_copied(const char* file, int line) const { ptx::copies_arrive(place(), 1, {"mbarrier.arrive.release.cta", file, line}); }
  bool over(uint64_t parity, const char* file, int line) const {
    return ptx::mbarrier_over(place(), parity, {"mbarrier.try_wait.acquire.cta", file, line});
  }
  void wait(uint64_t parity, const char* file, int line) const {
    while (!over(parity, file, line)) {}
  }
};
}  // namespace emu
