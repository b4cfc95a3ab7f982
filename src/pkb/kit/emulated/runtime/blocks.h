// A block of a running kernel: its fibers, its barriers, its shared memory.
#pragma once
#include <string.h>

#include <map>
#include <memory>
#include <random>
#include <utility>

#include "fibers.h"

namespace emu {
struct Dim { unsigned x, y, z; };
struct Words { uint64_t word[2]; };
struct Kernel;

constexpr size_t SLOT = 512 << 10;         // of the arena, for one block
constexpr size_t GUARD = 256 << 10;        // its end, which nobody may touch: more than a launch can ask for
constexpr size_t SHARED_MOST = 227 << 10;  // of a block, as on an H200
constexpr size_t ARENA_SLOTS = 8192;
constexpr unsigned CLUSTER_MOST = 16;      // blocks, where a kernel has allowed more than 8

struct Gate {  // who meets at a barrier; `needed` 0: all that are left
  unsigned arrived = 0, generation = 0, needed = 0;
  uint32_t who[32] = {};  // of those that wait
};
struct WarpGate {
  unsigned mask = 0, arrived = 0, generation = 0;
  bool orders = false;  // memory too: a shuffle does not
};
struct Block;
void record_barrier(const Block& b, unsigned number, const uint32_t* who, const void* code);
void record_warp(const Block& b, unsigned warp, unsigned mask);
struct Warp {
  unsigned live = 0;
  WarpGate gates[8];
  void open(const Block& b, unsigned index) {
    for (WarpGate& g : gates)
      if (g.arrived && (g.mask & live & ~g.arrived) == 0) {
        if (g.orders) record_warp(b, index, g.mask);
        g.arrived = 0, ++g.generation;
      }
  }
};

struct Cluster {  // blocks that run at once, and may use each other's shared memory
  std::vector<Block*> blocks;  // by rank; one that has ended stays until all have
  unsigned live = 0, ended = 0, arrived = 0, generation = 0;  // threads, blocks, threads at its barrier
};
struct Block {
  Kernel* kernel = nullptr;
  Cluster* cluster = nullptr;
  unsigned rank = 0;  // in its cluster
  Dim index{};
  std::vector<Fiber*> fibers;
  std::vector<Warp> warps;
  std::vector<Words> words;
  Gate named[16];
  unsigned live = 0, current = 0;
  unsigned slot = 0;
  char *shared = nullptr, *dynamic = nullptr;  // its slot, and where its dynamic shared memory begins
  std::map<std::pair<const void*, unsigned>, void*> statics;  // that it has used

  unsigned linear() const;  // its number in the grid
  void open(Gate& g, bool all, const void* code) {
    record_barrier(*this, (unsigned)(&g - named), all ? nullptr : g.who, code);
    memset(g.who, 0, sizeof g.who);
    g.arrived = 0, ++g.generation;
  }
  void open_named(const void* code) {
    for (Gate& g : named)
      if (!g.needed && g.arrived && g.arrived == live) open(g, true, code);
  }
  void left() {  // by the current thread: one that has ended counts as come
    Warp& warp = warps[current / 32];
    warp.live &= ~(1u << current % 32), warp.open(*this, current / 32);
    --live, open_named(nullptr);
  }
};

// The order in which a pass visits threads: anywhere first, then up or down.
struct Order {
  unsigned start, stride, count;
  Order(std::minstd_rand& random, unsigned count) : start(random() % count), stride(random() % 2 ? 1 : count - 1), count(count) {}
  unsigned at(unsigned n) const { return (start + (uint64_t)n * stride) % count; }
};
}  // namespace emu
