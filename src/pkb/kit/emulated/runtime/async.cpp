// mbarriers, bulk copies, and lanes that meet. A copy into shared memory arrives when a thread asks its mbarrier, one out of it when its thread waits
// for it or ends: what nobody waits for has not happened.
#include <algorithm>
#include <map>

#include "log.h"

namespace emu {
namespace {
struct Mbarrier { uint64_t count : 20, pending : 20, phase : 1; int64_t bytes : 23; };  // in the candidate's own 8 bytes
static_assert(sizeof(Mbarrier) == 8);
struct Coming {  // what an mbarrier has to hear of yet
  std::vector<Copy> copies;
  unsigned bytes;      // that it expects
  const Fiber* by;     // who arrives then, if somebody does
};
std::multimap<const void*, Coming> coming;  // by mbarrier
void copy(const std::vector<Copy>& copies) {
  for (const Copy& c : copies) {
    if (c.bytes) memcpy(c.to, c.from, c.bytes);
    if (c.zeros) memset(static_cast<char*>(c.to) + c.bytes, 0, c.zeros);
  }
}

void flip(Mbarrier& b) {
  if (b.pending == 0 && b.bytes == 0) b.phase ^= 1, b.pending = b.count;
}
void deliver(void* p) {  // what an mbarrier waits for
  Mbarrier& b = *static_cast<Mbarrier*>(p);
  for (auto [at, end] = coming.equal_range(p); at != end; at = coming.erase(at)) {
    copy(at->second.copies);
    b.bytes -= at->second.bytes, b.pending -= at->second.by != nullptr;
    flip(b);
  }
}
}  // namespace

void finish_arriving(const Fiber& f) {
  for (auto& [barrier, c] : coming)
    if (c.by == &f) copy(std::exchange(c.copies, {}));
}
void forget_arriving(const Block& b) { coming.erase(coming.lower_bound(b.shared), coming.lower_bound(b.shared + SLOT)); }
// Groups of a thread that are closed, but the last ones (`end_of_thread`: all there is); `read`: their shared memory may be used again.
void finish_stores(Fiber& f, unsigned but, bool read, bool end_of_thread) {
  size_t end = f.stores.size();
  if (!end_of_thread)
    for (; end && (f.stores[end - 1].to || but--); --end) {}
  for (size_t i = 0; i < end; ++i) {
    BulkStore& s = f.stores[i];
    if (!s.to) continue;
    if (s.read.empty()) s.read.assign(s.from, s.from + s.bytes);
    if (read) continue;
    if (emu_recording_now) record_weak((uint64_t)s.to, s.bytes, true, GENERIC, nullptr, &s.at);
    memcpy(s.to, s.read.data(), s.bytes);
  }
  if (!read) f.stores.erase(f.stores.begin(), f.stores.begin() + end);
}
}  // namespace emu

using namespace emu;
extern "C" {
void emu_mbarrier_init(void* p, unsigned count) {
  Untimed untimed;
  if (!count || count >= 1u << 20) fail("an mbarrier for no threads, or for too many", p);
  coming.erase(p);
  *static_cast<Mbarrier*>(p) = {count, count, 0, 0};
}
// `arrivals` come, and so many bytes more are expected; the parity of the phase that they are part of.
uint64_t emu_mbarrier_arrive(void* p, unsigned arrivals, int bytes) {
  Untimed untimed;
  Mbarrier& b = *static_cast<Mbarrier*>(p);
  const uint64_t phase = b.phase;
  if (arrivals > b.pending) deliver(p);  // nobody has asked, and the phase has ended on a GPU all the same
  if (arrivals > b.pending) fail("more threads arrive at an mbarrier than it was made for", p);
  b.bytes += bytes, b.pending -= arrivals;
  flip(b);
  return phase;
}
unsigned emu_mbarrier_phase(const void* p) { return static_cast<const Mbarrier*>(p)->phase; }
// Whether the phase of this parity is over, after the copies that are under way have arrived.
int emu_mbarrier_over(void* p, unsigned parity) {
  Untimed untimed;
  Mbarrier& b = *static_cast<Mbarrier*>(p);
  deliver(p);
  return b.phase != (parity & 1);
}
void emu_bulk_load(void* to, const void* from, unsigned bytes, void* barrier) {
  Untimed untimed;
  coming.insert({barrier, {{{to, from, bytes, 0}}, bytes, nullptr}});
}
// The recorder takes the copies for done now: others know of it by this arrival, and the thread itself finds old values if it looks before.
void emu_copies_arrive(void* p, int one_more) {
  Untimed untimed;
  Fiber& f = *block->fibers[block->current];
  record_plain(R_COPIES_CLOSE, 0), record_plain(R_COPIES_DONE, 0);
  static_cast<Mbarrier*>(p)->pending += one_more;
  std::erase_if(f.copies, [](const Copy& c) { return !c.to; });
  coming.insert({p, {std::move(f.copies), 0, &f}});
  f.copies.clear();
}
void emu_bulk_store(void* to, const void* from, unsigned bytes, const EmuAt* at) {
  Untimed untimed;
  block->fibers[block->current]->stores.push_back({to, static_cast<const char*>(from), bytes, {}, *at});
}
void emu_bulk_close() { Untimed untimed; block->fibers[block->current]->stores.push_back({}); }
void emu_bulk_done(unsigned but, int read) { Untimed untimed; finish_stores(*block->fibers[block->current], but, read, false); }
// Lanes that are active: here, those that come to this line before they end, wait at a barrier, for memory, or further on. Those
// that have gone another way have met again behind it, as a GPU's do that runs the smallest address first.
unsigned emu_active_mask(int line) {
  Untimed untimed;
  settle();
  Fiber& f = *block->fibers[block->current];
  const unsigned first = block->current / 32 * 32, end = std::min<unsigned>(first + 32, block->fibers.size());
  for (f.meets = line, f.met = 0; !f.met;) {
    unsigned here = 0;
    bool all = true;
    for (unsigned t = first; t < end; ++t) {
      const Fiber& o = *block->fibers[t];
      if (o.meets == line) here |= 1u << (t - first);
      else all &= o.done || o.meets > line || o.blocked() || (o.polled && o.look.address);
    }
    if (!all) {
      f.polled = true;
      leave();
      in_fiber = false;
      continue;
    }
    for (unsigned t = first; t < end; ++t)
      if (here >> (t - first) & 1) block->fibers[t]->met = here, block->fibers[t]->meets = 0;
  }
  return f.met;
}
}
