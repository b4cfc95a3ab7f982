// What a thread knows to have happened before: a sparse vector clock whose entries may stand for many threads at once. Streams count
// operations that are complete; blocks and warps count barriers; threads count releases. An entry under a coarser one is dropped.
#pragma once
#include <stdint.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace races {
// A thread's time: intervals between barriers of its block, of its warp inside them, releases inside those. Comparisons of whole
// numbers are comparisons of times.
constexpr int INTERVAL = 40, WARP_INTERVAL = 20;
enum Level : uint64_t { STREAM, BLOCK, WARP, THREAD, LOCATION };
constexpr uint32_t MOST_LAUNCHES = 1 << 21, MOST_BLOCKS = 1 << 24;

constexpr uint64_t key(Level level, uint64_t launch, uint64_t block = 0, uint64_t thread = 0) {
  return (uint64_t)level << 61 | launch << 40 | block << 16 | thread;
}
constexpr uint64_t single(Level level, uint64_t index) { return (uint64_t)level << 61 | index; }
inline Level level_of(uint64_t k) { return (Level)(k >> 61); }
inline uint32_t launch_of(uint64_t k) { return (uint32_t)(k >> 40 & (MOST_LAUNCHES - 1)); }

struct Entry { uint64_t key, value; };  // what has a smaller time is known
using Entries = std::vector<Entry>;
using Clock = std::shared_ptr<const Entries>;  // null: nothing is known

inline uint64_t get(const Clock& c, uint64_t k) {
  if (!c) return 0;
  auto found = std::lower_bound(c->begin(), c->end(), k, [](const Entry& e, uint64_t k) { return e.key < k; });
  return found != c->end() && found->key == k ? found->value : 0;
}

struct Place { uint32_t stream; uint64_t operation; };  // of a launch in its stream
using Places = std::vector<Place>;                       // by launch

// Whether an entry says nothing that `c` does not say by itself.
inline bool covered(const Clock& c, const Entry& e, const Places& places) {
  const uint64_t k = e.key;
  if (get(c, k) >= e.value) return true;
  const Level level = level_of(k);
  if (level == STREAM || level == LOCATION) return false;
  const Place& p = places[launch_of(k)];
  if (get(c, single(STREAM, p.stream)) > p.operation) return true;
  if (level == BLOCK) return false;
  const uint64_t block = (uint64_t)BLOCK << 61 | (k & ((1ull << 61) - 1) & ~0xffffull);
  if (get(c, block) >= e.value) return true;
  if (level == WARP) return false;
  return get(c, (uint64_t)WARP << 61 | (block & ((1ull << 61) - 1)) | (k & 0xffff) / 32) >= e.value;
}
inline Clock join(const Clock& a, const Clock& b, const Places& places) {
  if (!b || a == b) return a;
  if (!a) return b;
  bool more = false;
  for (const Entry& e : *b)
    if (!covered(a, e, places)) {
      more = true;
      break;
    }
  if (!more) return a;
  auto both = std::make_shared<Entries>();
  both->reserve(a->size() + b->size());
  auto i = a->begin(), j = b->begin();
  while (i != a->end() || j != b->end()) {
    if (j == b->end() || (i != a->end() && i->key < j->key)) both->push_back(*i++);
    else if (i == a->end() || j->key < i->key) both->push_back(*j++);
    else both->push_back({i->key, std::max(i->value, j->value)}), ++i, ++j;
  }
  const Clock all = both;
  auto kept = std::make_shared<Entries>();
  kept->reserve(all->size());
  for (const Entry& e : *all) {
    const Level level = level_of(e.key);
    if (level == STREAM || level == LOCATION) {
      kept->push_back(e);
      continue;
    }
    // Covered by a coarser entry, not by itself.
    const Place& p = places[launch_of(e.key)];
    if (get(all, single(STREAM, p.stream)) > p.operation) continue;
    const uint64_t low = e.key & ((1ull << 61) - 1), block = (uint64_t)BLOCK << 61 | (low & ~0xffffull);
    if (level != BLOCK && get(all, block) >= e.value) continue;
    if (level == THREAD && get(all, (uint64_t)WARP << 61 | (low & ~0xffffull) | (low & 0xffff) / 32) >= e.value) continue;
    kept->push_back(e);
  }
  return kept;
}
inline Clock with(const Clock& a, const Entry& e, const Places& places) {
  return join(a, std::make_shared<Entries>(Entries{e}), places);
}
}  // namespace races
