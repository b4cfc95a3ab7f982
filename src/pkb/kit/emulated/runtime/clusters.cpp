// Clusters of blocks: who is in which, their barrier, and the way from one block's shared memory to another's.
#include "record.h"

namespace emu {
namespace {
void open_cluster(Block& b) {
  Cluster& c = *b.cluster;
  if (!c.arrived || c.arrived != c.live) return;
  record_plain(R_CLUSTER_OPEN, 0);
  c.arrived = 0, ++c.generation;
}
Fiber& running_fiber() { return *block->fibers[block->current]; }
}  // namespace

// Blocks are begun cluster by cluster, and those of one by their rank.
void join_cluster(Block& b, unsigned number) {
  Kernel& k = *b.kernel;
  const Dim& d = k.cluster;
  const unsigned all = k.together(), n = number / all, across = k.grid.x / d.x, down = k.grid.y / d.y;
  b.rank = number % all;
  if (b.rank == 0) k.begun = new Cluster, k.begun->live = all * k.threads();
  b.cluster = k.begun;
  b.cluster->blocks.push_back(&b);
  b.index = {n % across * d.x + b.rank % d.x, n / across % down * d.y + b.rank / d.x % d.y, n / across / down * d.z + b.rank / d.x / d.y};
}
void leave_cluster(Block& b) { --b.cluster->live, running_fiber().arrived_at = 0, open_cluster(b); }
}  // namespace emu

using namespace emu;
extern "C" {
void emu_cluster_arrive(int releases) {
  Untimed untimed;
  settle();
  if (running_fiber().arrived_at) fail("a thread arrives twice at its cluster's barrier without waiting", nullptr);
  running_fiber().last = {}, running_fiber().look = {};
  record_plain(R_CLUSTER_ARRIVE, (uint64_t)releases);
  running_fiber().arrived_at = block->cluster->generation + 1;
  ++block->cluster->arrived;
  open_cluster(*block);
}
void emu_cluster_wait() {
  Untimed untimed;
  settle();
  Fiber& f = running_fiber();
  if (!f.arrived_at) fail("a thread waits at its cluster's barrier without having arrived", nullptr);
  const unsigned generation = f.arrived_at - 1;
  if (block->cluster->generation == generation) {
    f.gate = &block->cluster->generation, f.generation = generation;
    leave();
    in_fiber = false;
  }
  f.arrived_at = 0;
  record_plain(R_CLUSTER_WAIT, 0);
}
char* emu_mapped(const void* shared, unsigned rank) {
  const size_t offset = (size_t)(static_cast<const char*>(shared) - emu_shared_arena);
  if (offset >= ARENA_SLOTS * SLOT) fail("not an address of shared memory", shared);
  if (rank >= block->cluster->blocks.size()) fail("a block that its cluster does not have", shared);
  return block->cluster->blocks[rank]->shared + offset % SLOT;
}
unsigned emu_cluster_rank_of(const void* shared) {
  for (const Block* b : block->cluster->blocks)
    if ((size_t)(static_cast<const char*>(shared) - b->shared) < SLOT) return b->rank;
  fail("not an address of shared memory of its cluster", shared);
}
void emu_wait_for_grids() {
  Untimed untimed;
  if (block->kernel->early) record_plain(R_WAIT_FOR_GRIDS, 0);
}
}
