// A board that the ranks of a side share, one file each: how far the blocks of this rank are, and which of them has set which word
// of symmetric memory last. A peer that waits in vain reads it (rank/emulate/cuda/setters.py, which knows this layout too).
#pragma once
#include "runtime.h"

namespace emu {
enum BlockState : uint8_t { NOT_BEGUN, BEGUN, ENDED };
struct Set { uint64_t address; uint32_t block, launch; };
struct Board {
  static constexpr unsigned BLOCKS = 4096, WORDS = 1 << 13;
  char kernel[96];        // the last that was launched here
  uint32_t launch, total;  // its number, from 1, and its blocks
  uint8_t blocks[BLOCKS];
  Set set[WORDS];         // by a hash of the address, which is this rank's own
};
inline Board* board = nullptr;
struct Range { uint64_t begin, end; };
inline std::vector<Range> watched;  // symmetric memory, where this rank has it

inline unsigned linear_index(const Block& b) { return b.index.x + b.kernel->grid.x * (b.index.y + b.kernel->grid.y * b.index.z); }
inline void note_block(const Kernel& k, unsigned index, BlockState state) {
  if (!board) return;
  if (state == BEGUN && index == 0) {
    snprintf(board->kernel, sizeof board->kernel, "%s", k.name.c_str());
    ++board->launch, board->total = k.total;
    memset(board->blocks, NOT_BEGUN, sizeof board->blocks);
  }
  if (index < Board::BLOCKS) board->blocks[index] = state;
}
inline void note_set(uint64_t address, const Block& b) {
  for (const Range& r : watched)
    if (r.begin <= address && address < r.end) {
      Set* place = &board->set[address * 0x9e3779b97f4a7c15ull >> 51];
      *place = {address, linear_index(b), board->launch};  // of two words with one hash the later is kept
      return;
    }
}
}  // namespace emu
