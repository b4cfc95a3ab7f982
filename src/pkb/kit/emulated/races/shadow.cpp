#include "shadow.h"

#include <stdexcept>

using namespace emu;
namespace races {
namespace {
constexpr uint64_t MOST_OBJECTS = 1 << 18;  // an address has 47 bits, so a word of it 45
uint64_t place_of(uint64_t object, uint64_t word) { return object << 45 | word; }
}  // namespace
Shadow::Shadow(Machine& machine) : m_(machine), memory_(machine.trace.logs.size()) {}

void Shadow::memory(uint32_t rank, const Memory& m) {
  auto& all = memory_[rank];
  if (all.size() > 65536 || m.bytes > 1ull << 40) throw std::runtime_error("too much memory was announced");
  all.erase(std::remove_if(all.begin(), all.end(), [&](const Memory& o) { return o.begin < m.begin + m.bytes && m.begin < o.begin + o.bytes; }), all.end());
  all.insert(std::upper_bound(all.begin(), all.end(), m.begin, [](uint64_t a, const Memory& o) { return a < o.begin; }), m);
}
Shadow::Spot Shadow::resolve(uint32_t rank, uint64_t address) {
  const uint64_t ranks = m_.trace.logs.size();
  const LogHead& head = m_.trace.logs[rank].head();
  if (address - head.arena < head.arena_bytes) return {ranks + rank, address - head.arena};
  const auto& all = memory_[rank];
  auto found = std::upper_bound(all.begin(), all.end(), address, [](uint64_t a, const Memory& o) { return a < o.begin; });
  if (found != all.begin() && address - (--found)->begin < found->bytes) {
    auto [at, is_new] = symmetric_.try_emplace({found->allocation, found->owner}, 2 * ranks + symmetric_.size());
    if (at->second >= MOST_OBJECTS) throw std::runtime_error("too many allocations");
    if (is_new) symmetric_names_.push_back({found->allocation, found->owner});
    return {at->second, address - found->begin};
  }
  return {rank, address & ((1ull << 47) - 1)};
}
std::string Shadow::name_of(uint64_t object) const {
  const uint64_t ranks = m_.trace.logs.size();
  if (object < ranks) return "global memory of rank " + std::to_string(object);
  if (object < 2 * ranks) return "shared memory";
  const auto& [allocation, owner] = symmetric_names_[object - 2 * ranks];
  if (allocation >> 31) return "global memory of rank " + std::to_string(owner);  // told apart from what had its address before
  return "symmetric allocation " + std::to_string(allocation) + " of rank " + std::to_string(owner);
}
Shadow::Page& Shadow::page(uint64_t object, uint64_t offset) {
  const uint64_t name = object << 40 | offset / PAGE;
  if (name == last_page_) return *last_;
  auto& found = pages_[name];
  if (!found) found.reset(new Page);
  last_page_ = name, last_ = found.get();
  return *last_;
}
void Shadow::begin_shared(uint32_t rank, uint64_t slot, uint64_t dynamic) {
  const LogHead& head = m_.trace.logs[rank].head();
  if (!head.arena_slot || head.arena_slot > 1 << 22 || slot >= head.arena_bytes / head.arena_slot) return;
  dynamic_[{rank, slot}] = dynamic;
  const uint64_t object = m_.trace.logs.size() + rank, begin = slot * head.arena_slot;
  for (uint64_t at = begin; at < begin + head.arena_slot; at += PAGE) {
    auto found = pages_.find(object << 40 | at / PAGE);
    if (found == pages_.end()) continue;
    if (found->second->locations)
      for (uint64_t word = at; word < at + PAGE; word += 4) locations_.erase(place_of(object, word / 4));
    pages_.erase(found);
  }
  last_page_ = ~0ull;
}
Location& Shadow::location(const Who& w, uint64_t address) {
  const Spot s = resolve(w.rank, address);
  page(s.object, s.offset).locations = true;
  auto [found, is_new] = locations_.try_emplace(place_of(s.object, s.offset / 4));
  if (is_new) found->second.index = ++last_location_;
  return found->second;
}
void Shadow::proxy_fence(const Who& w, const Clock& seen) {
  Clock& c = proxied_[{w.launch, w.block}];
  c = join(c, seen, m_.places);
}

void Shadow::access(const Who& w, uint64_t address, uint32_t bytes, bool write, uint8_t mode, uint32_t site, bool copied) {
  Access now;
  now.launch = w.launch, now.block = w.block, now.warp = (uint16_t)(w.thread / 32), now.lanes = 1u << w.thread % 32;
  now.site = site, now.mode = mode, now.write = write, now.copied = copied;
  m_.block_of(w);
  const Clock mine = m_.clock_of(w);
  now.time = copied ? m_.block_of(w).copies[w.thread].groups : m_.time_of(w);
  const Spot begin = resolve(w.rank, address);
  if (write && now.strength() != WEAK) {
    const Location& l = location(w, address);
    now.strong_write = true, now.location = l.index, now.write_number = l.writes;
  }
  for (uint64_t at = begin.offset; at < begin.offset + bytes;) {
    const uint64_t cell = at / CELL, end = std::min((cell + 1) * CELL, begin.offset + bytes);
    now.bytes = (uint8_t)(((1u << (end - at)) - 1) << at % CELL);
    Page& p = page(begin.object, at);
    if (p.locations && write && now.strength() == WEAK)
      for (uint64_t word = at / 4; word <= (end - 1) / 4; ++word)
        if (auto l = locations_.find(place_of(begin.object, word)); l != locations_.end()) l->second.released.clear(), l->second.last_scope = 0;
    auto& accesses = p.cells[cell % CELLS];
    now.dispute = 0;
    check(w, mine, now, accesses, {begin.object, at});
    insert(accesses, now);
    at = end;
  }
}
Finding Shadow::described(const Access& e, const Who& other, const Access& now, const Who& w, const Spot& spot) const {
  Finding f;
  const unsigned first = (unsigned)__builtin_ctz(e.bytes & now.bytes);
  f.memory = name_of(spot.object), f.offset = spot.offset / CELL * CELL + first;
  if (spot.object >= m_.trace.logs.size() && spot.object < 2 * m_.trace.logs.size()) {
    const uint64_t slot = std::max<uint64_t>(1, m_.trace.logs[w.rank].head().arena_slot);
    const auto dynamic = dynamic_.find({w.rank, f.offset / slot});
    f.offset %= slot;
    if (dynamic != dynamic_.end() && f.offset >= dynamic->second) f.offset -= dynamic->second;
  }
  f.bytes = (uint64_t)__builtin_popcount(e.bytes & now.bytes), f.number = m_.number;
  f.first = {other, e.site, m_.launches[e.launch].call, m_.launches[e.launch].site, e.mode, e.write, e.copied};
  f.second = {w, now.site, m_.launches[w.launch].host ? m_.calls[w.rank] : m_.launches[w.launch].call, m_.launches[w.launch].site, now.mode, now.write, now.copied};
  for (const Who& side : {other, w}) {
    auto& blocks = m_.launches[side.launch].blocks;
    if (auto block = blocks.find(side.block); block != blocks.end())
      f.moments.insert(f.moments.end(), block->second.moments.begin(), block->second.moments.end());
  }
  return f;
}
uint32_t Shadow::disputed(const FindingKey& key, const Access& e, const Who& other, const Access& now, const Who& w, const Spot& spot) {
  auto [found, is_new] = dispute_numbers_.try_emplace(key, (uint32_t)disputes_.size() + 1);
  if (is_new) disputes_.push_back({key, described(e, other, now, w, spot)});
  return found->second;
}
void Shadow::check(const Who& w, const Clock& mine, Access& now, std::vector<Access>& cell, const Spot& spot) {
  const BlockState& here = m_.block_of(w);
  size_t kept = 0;
  for (size_t i = 0; i < cell.size(); ++i) {
    Access& e = cell[i];
    bool drop = false;
    if (e.bytes & now.bytes) {
      const bool conflict = e.write || now.write;
      const bool same_block = e.launch == now.launch && e.block == now.block;
      uint64_t time = e.time;
      bool done = true;
      if (e.copied) {
        const auto& copies = m_.launches[e.launch].blocks[e.block].copies[32u * e.warp + (uint32_t)__builtin_ctz(e.lanes)].done;
        done = e.time < copies.size();
        if (done) time = copies[e.time];
      }
      bool ordered;
      if (!done) ordered = m_.knows(mine, e.launch, e.block, e.warp, e.lanes, ~0ull);
      else if (same_block && time < here.interval << INTERVAL) ordered = true;
      else {
        uint32_t lanes = e.lanes;
        if (same_block && e.warp == now.warp) lanes &= ~now.lanes;  // its own
        ordered = !lanes || m_.knows(mine, e.launch, e.block, e.warp, lanes, time);
        if (!ordered && e.strong_write) ordered = get(mine, single(LOCATION, e.location)) > e.write_number;
      }
      const uint32_t not_me = same_block && e.warp == now.warp ? e.lanes & ~now.lanes : e.lanes;  // a thread does not race with itself
      const Who other{m_.launches[e.launch].rank, e.launch, e.block, 32u * e.warp + (uint32_t)__builtin_ctz(not_me ? not_me : e.lanes)};
      bool read_only = false, proxy = false;
      if (conflict && ordered && !now.write && now.proxy() == READONLY && e.write && !m_.rules.one_proxy)
        read_only = !m_.knows(m_.launches[now.launch].start, e.launch, e.block, e.warp, e.lanes, time) &&
                    !m_.knows(m_.launches[now.launch].serial, e.launch, e.block, e.warp, e.lanes, time);
      if (conflict && ordered && now.proxy() == ASYNC && e.proxy() != ASYNC && !m_.rules.one_proxy && e.launch == now.launch) {
        auto found = proxied_.find({now.launch, now.block});
        proxy = found == proxied_.end() || !m_.knows(found->second, e.launch, e.block, e.warp, e.lanes, time);
      }
      const bool lost = e.write && now.write && other.rank != w.rank && (e.strength() == OPERATOR || now.strength() == OPERATOR);
      const bool strong = !lost && e.strength() != WEAK && now.strength() != WEAK && m_.mutual(e.scope(), other, now.scope(), w);
      const FindingKey found{other.rank, e.site, w.rank, now.site, e.write, now.write};
      // Threads of one launch may all store the same, as marks are set; and what nobody reads may hold whatever it does.
      const bool stores = e.write && now.write && e.launch == now.launch && e.strength() == WEAK && now.strength() == WEAK &&
                          !e.copied && !now.copied && !m_.launches[e.launch].by_host;
      if (stores && !ordered) {
        if (e.scope() != UNKNOWN_EFFECT && now.scope() == CHANGED) now.dispute = disputed(found, e, other, now, w, spot);
        else if (!now.dispute) now.dispute = e.dispute;
      } else if (conflict && ((!ordered && !strong) || read_only || proxy)) {
        if (Finding* f = m_.findings.add(found)) {
          const uint64_t count = f->count;
          *f = described(e, other, now, w, spot);
          f->count = count, f->read_only = read_only, f->proxy = proxy;
        }
      }
      if (e.dispute && !now.write)
        if (const Dispute& d = disputes_[e.dispute - 1]; Finding* f = m_.findings.add(d.key)) *f = d.finding, f->count = 1;
      // What comes before this one, and is no stronger excuse than it, says nothing more than it does.
      const bool weaker = now.strength() == WEAK || (e.strength() != WEAK && now.scope() <= e.scope());
      if (now.write && (ordered || !strong) && weaker) e.bytes &= ~now.bytes, drop = !e.bytes;
      else if (!now.write && !e.write && ordered && weaker && !now.copied && (e.bytes & ~now.bytes) == 0 && now.proxy() == e.proxy()) drop = true;
    }
    if (!drop) {
      if (kept != i) cell[kept] = e;
      ++kept;
    }
  }
  cell.resize(kept);
}
void Shadow::insert(std::vector<Access>& cell, const Access& now) {
  for (Access& e : cell)
    if (!now.copied && e.launch == now.launch && e.block == now.block && e.warp == now.warp && e.time == now.time && e.site == now.site && e.mode == now.mode &&
        e.write == now.write && e.copied == now.copied && e.bytes == now.bytes && e.dispute == now.dispute) {
      e.lanes |= now.lanes;
      if (now.strong_write) e.write_number = now.write_number;
      return;
    }
  cell.push_back(now);
}
}  // namespace races
