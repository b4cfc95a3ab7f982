#include "machine.h"

#include <stdexcept>

#include "shadow.h"

using namespace emu;
namespace races {
namespace {
constexpr size_t MOST_EDGES = 1 << 17, MOMENTS = 16;
uint64_t next_warp(uint64_t time) { return ((time >> WARP_INTERVAL) + 1) << WARP_INTERVAL; }

void keep(std::vector<Released>& all, const Released& r, const Places& places) {  // those of one scope and rank are one
  for (Released& o : all) {
    const bool same = o.scope == r.scope && o.strict == r.strict &&
                      ((r.scope >= GPU && o.by.rank == r.by.rank) || (o.by.launch == r.by.launch && o.by.block == r.by.block));
    if (!same) continue;
    o.clock = join(o.clock, r.clock, places), o.by = r.by, o.site = r.site;
    return;
  }
  all.push_back(r);
}
}  // namespace

Machine::Machine(Trace& trace, Rules rules, Findings& findings) : trace(trace), rules(rules), findings(findings), shadow_(new Shadow(*this)) {
  const uint32_t ranks = (uint32_t)trace.logs.size();
  calls.assign(ranks, 0);
  for (uint32_t r = 0; r < ranks; ++r) {
    Launch l;
    l.rank = r, l.host = l.begun = true, l.threads = 1, l.stream = (uint32_t)streams_.size();
    streams_.push_back({nullptr, 0, 0, false, r});
    launches.push_back(std::move(l));
    places.push_back({(uint32_t)streams_.size() - 1, ~0ull});
    current_.push_back({r, r, 0, 0});
  }
}
Machine::~Machine() = default;

void Machine::run() {
  trace.rewind();
  Event e;
  while (trace.next(e)) {
    ++events, number = e.number;
    step(e);
  }
}
bool Machine::includes(unsigned scope, const Who& a, const Who& b) const {
  switch (scope) {
    case SYS: return true;
    case GPU: return a.rank == b.rank;
    case CLUSTER: {
      if (a.launch != b.launch) return false;
      const auto& blocks = launches[a.launch].blocks;
      const auto one = blocks.find(a.block), two = blocks.find(b.block);
      return one == blocks.end() || two == blocks.end() || one->second.cluster == two->second.cluster || one->second.cluster == NO_CLUSTER ||
             two->second.cluster == NO_CLUSTER;
    }
    case CTA: return a.launch == b.launch && a.block == b.block;
    default: return false;
  }
}
bool Machine::knows(const Clock& c, uint32_t launch, uint32_t block, uint32_t warp, uint32_t lanes, uint64_t time) const {
  const Place& p = places[launch];
  if (get(c, single(STREAM, p.stream)) > p.operation) return true;
  if (get(c, key(BLOCK, launch, block)) > time || get(c, key(WARP, launch, block, warp)) > time) return true;
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    const uint32_t thread = 32 * warp + (uint32_t)__builtin_ctz(rest);
    if (get(c, key(THREAD, launch, block, thread)) <= time) return false;
  }
  return true;
}
BlockState& Machine::block_of(const Who& w) {
  Launch& l = launches[w.launch];
  auto [found, is_new] = l.blocks.try_emplace(w.block);
  if (is_new) found->second.base = l.start, ++threads;
  return found->second;
}
Thread& Machine::thread_of(const Who& w) {
  BlockState& b = block_of(w);
  Thread& t = b.threads[w.thread];
  t.time = std::max(t.time, b.interval << INTERVAL);
  return t;
}
const Clock& Machine::clock_of(const Who& w) {
  BlockState& b = block_of(w);
  auto found = b.threads.find(w.thread);
  return found == b.threads.end() || !found->second.own ? b.base : found->second.own;
}
uint64_t Machine::time_of(const Who& w) {
  BlockState& b = block_of(w);
  auto found = b.threads.find(w.thread);
  return std::max(found == b.threads.end() ? 0 : found->second.time, b.interval << INTERVAL);
}
void Machine::learn(const Who& w, const Clock& c) {
  const Clock& mine = clock_of(w);
  const Clock more = join(mine, c, places);
  if (more != mine) thread_of(w).own = more;
}
// What it knows, with itself; what it does afterwards is not in it.
Clock Machine::publishable(const Who& w) {
  Thread& t = thread_of(w);
  const Clock known = clock_of(w);
  return with(known, {key(THREAD, w.launch, w.block, w.thread), ++t.time}, places);
}
void Machine::note(const Event& e, const Who& w) {
  auto& all = block_of(w).moments;
  if (all.size() == MOMENTS) all.erase(all.begin());
  all.push_back({w.rank, e.r.site, e.number, e.r.kind, e.r.mode, w});
}

// --- strong accesses and fences ---

void Machine::observe(Location& l, const Event& e, const Who& w, bool acquires) {
  const unsigned scope = e.r.mode >> 3 & 7;
  if (!l.last_scope || !mutual(l.last_scope, l.last, scope, w)) return;  // nothing is observed that was not written strongly
  for (const Released& r : l.released) {
    const bool strict = r.strict && acquires && includes(r.scope, r.by, w) && includes(scope, w, r.by);
    if ((acquires || rules.relaxed_orders) && mutual(r.scope, r.by, scope, w)) {
      if (!strict && edges.size() < MOST_EDGES && !(r.by == w)) edges.push_back({r.site, e.r.site, r.by, w, e.number});
      learn(w, r.clock);
    }
    keep(thread_of(w).observed, r, places);
  }
  // The write itself comes before what follows the read, also where neither releases nor acquires.
  if (!(l.last == w) && !knows(clock_of(w), l.last.launch, l.last.block, l.last.thread / 32, 1u << l.last.thread % 32, l.last_time))
    learn(w, std::make_shared<Entries>(Entries{{single(LOCATION, l.index), l.writes}}));
}
void Machine::publish(Location& l, const Event& e, const Who& w, bool releases, bool update) {
  const uint8_t scope = e.r.mode >> 3 & 7;
  if (!update || !l.last_scope || !mutual(l.last_scope, l.last, scope, w)) l.released.clear();
  for (const Released& f : thread_of(w).fences) keep(l.released, f, places);
  l.last_time = time_of(w);
  if (releases || rules.relaxed_orders) keep(l.released, {publishable(w), scope, w, e.r.site, releases}, places);
  l.last = w, l.last_scope = scope;
  ++l.writes;
}
void Machine::strong(const Event& e, const Who& w) {
  const unsigned order = e.r.mode & 7;
  const bool reads = e.r.kind != R_STRONG_WRITE, writes = e.r.kind != R_STRONG_READ;
  const bool acquires = reads && (order == ACQUIRE || order == ACQ_REL || order == SC || order == OPERATOR);
  const bool releases = writes && (order == RELEASE || order == ACQ_REL || order == SC || order == OPERATOR);
  shadow_->access(w, e.r.address, e.r.bytes, writes, e.r.mode, e.r.site, false);
  const unsigned words = std::min(8u, (e.r.bytes + 3u) / 4);
  if (reads)
    for (unsigned i = 0; i < words; ++i) observe(shadow_->location(w, e.r.address + 4 * i), e, w, acquires);
  if (writes)
    for (unsigned i = 0; i < words; ++i) publish(shadow_->location(w, e.r.address + 4 * i), e, w, releases, e.r.kind == R_STRONG_UPDATE);
  note(e, w);
}
void Machine::fence(const Event& e, const Who& w) {
  const uint8_t scope = e.r.mode >> 3 & 7;
  note(e, w);
  if (e.r.mode >> 6 == ASYNC) return shadow_->proxy_fence(w, publishable(w));
  for (const Released& r : std::vector<Released>(thread_of(w).observed)) {
    if (!mutual(r.scope, r.by, scope, w)) continue;
    const bool strict = r.strict && includes(r.scope, r.by, w) && includes(scope, w, r.by);
    if (!strict && edges.size() < MOST_EDGES) edges.push_back({r.site, e.r.site, r.by, w, e.number});
    learn(w, r.clock);
  }
  Released mine{publishable(w), scope, w, e.r.site, true};
  auto& all = thread_of(w).fences;
  all.erase(std::remove_if(all.begin(), all.end(), [&](const Released& f) { return f.scope <= scope; }), all.end());
  all.push_back(mine);
}

// --- barriers ---

void Machine::barrier(const Who& w, const std::vector<uint32_t>& members, bool whole, unsigned number) {
  BlockState& b = block_of(w);
  Clock all = b.base;
  if (auto found = b.arrived.find(number); found != b.arrived.end()) all = join(all, found->second, places), b.arrived.erase(found);
  if (whole) {
    for (auto& [number, t] : b.threads) all = join(all, t.own, places), t.own = nullptr;
    ++b.interval;
    b.base = with(all, {key(BLOCK, w.launch, w.block), b.interval << INTERVAL}, places);
    return;
  }
  std::map<uint32_t, uint32_t> lanes;  // by warp
  for (uint32_t m : members) {
    const Who member{w.rank, w.launch, w.block, m};
    all = join(all, clock_of(member), places);
    lanes[m / 32] |= 1u << m % 32;
  }
  auto made = std::make_shared<Entries>();
  const uint32_t count = launches[w.launch].threads;
  for (auto& [warp, mask] : lanes) {
    const uint32_t left = count - std::min(count, 32 * warp), full = left >= 32 ? ~0u : (1u << left) - 1;
    uint64_t time = 0;
    for (uint32_t rest = mask; rest; rest &= rest - 1) time = std::max(time, time_of({w.rank, w.launch, w.block, 32 * warp + (uint32_t)__builtin_ctz(rest)}));
    if ((mask & full) == full) {
      time = next_warp(time);
      made->push_back({key(WARP, w.launch, w.block, warp), time});
    }
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
      const uint32_t thread = 32 * warp + (uint32_t)__builtin_ctz(rest);
      Thread& t = thread_of({w.rank, w.launch, w.block, thread});
      if ((mask & full) == full) t.time = time;
      else made->push_back({key(THREAD, w.launch, w.block, thread), ++t.time});
    }
  }
  std::sort(made->begin(), made->end(), [](const Entry& x, const Entry& y) { return x.key < y.key; });
  all = join(all, made, places);
  for (uint32_t m : members) thread_of({w.rank, w.launch, w.block, m}).own = all;
}
void Machine::join_blocks(Launch& l, const std::vector<uint32_t>& blocks, Clock all, Clock& to) {
  const uint32_t index = (uint32_t)(&l - launches.data());
  auto made = std::make_shared<Entries>();
  for (uint32_t number : blocks) {
    BlockState& b = l.blocks[number];
    all = join(all, b.base, places);
    for (auto& [thread, t] : b.threads) all = join(all, t.own, places), t.own = nullptr;
    made->push_back({key(BLOCK, index, number), ++b.interval << INTERVAL});
  }
  std::sort(made->begin(), made->end(), [](const Entry& x, const Entry& y) { return x.key < y.key; });
  to = join(all, made, places);
  for (uint32_t number : blocks) l.blocks[number].base = to;
}
// Threads that arrive release, and those that wait acquire. Where nobody did anything in between they are all alike afterwards, as behind a barrier of a grid.
void Machine::cluster(const Event& e, const Who& w) {
  Launch& l = launches[w.launch];
  ClusterState& c = l.clusters[block_of(w).cluster];
  if (e.r.kind == R_CLUSTER_ARRIVE) {
    Thread& t = thread_of(w);
    if (!t.arrived) t.arrived = true, ++l.arrived;
    if (!e.r.address) c.split = true;
    else c.arrived.push_back({key(THREAD, w.launch, w.block, w.thread), ++t.time});
    if (const Clock known = clock_of(w); e.r.address && (c.known.empty() || c.known.back() != known)) c.known.push_back(known);
    note(e, w);
  } else if (e.r.kind == R_CLUSTER_OPEN) {
    if (block_of(w).cluster == NO_CLUSTER && c.blocks.empty())  // begun before the recording: all that are heard of
      for (auto& [number, b] : l.blocks) c.blocks.push_back(number);
    for (uint32_t number : c.blocks)
      for (auto& [thread, t] : l.blocks[number].threads) l.arrived -= t.arrived, t.arrived = false;
    if (c.split) {
      std::sort(c.arrived.begin(), c.arrived.end(), [](const Entry& x, const Entry& y) { return x.key < y.key; });
      c.opened = std::make_shared<Entries>(std::move(c.arrived));
      for (const Clock& known : c.known) c.opened = join(c.opened, known, places);
    } else {
      join_blocks(l, c.blocks, nullptr, c.opened);
    }
    c.arrived.clear(), c.known.clear(), c.split = false, c.before = c.after = nullptr;
  } else if (const Clock mine = clock_of(w); c.after && mine == c.before) {
    if (c.after != mine) thread_of(w).own = c.after;
  } else {
    learn(w, c.opened);
    c.before = mine, c.after = clock_of(w);
  }
}
void Machine::end_block(Launch& l, BlockState& b) {
  l.end = join(l.end, b.base, places);
  for (auto& [number, t] : b.threads) l.end = join(l.end, t.own, places);
}

// --- one event ---

void Machine::copy(const Event& e, const Who& w) {
  const uint64_t bytes = std::min<uint64_t>(e.more[1], e.r.bytes);
  if (bytes) shadow_->access(w, e.more[0], (uint32_t)bytes, false, 0, e.r.site, true);
  shadow_->access(w, e.r.address, e.r.bytes, true, 0, e.r.site, true);
}
void Machine::step(const Event& e) {
  Who& w = current_[e.rank];
  const uint64_t at = e.r.address;
  const Who host{e.rank, e.rank, 0, 0};
  if (launches[w.launch].arrived && e.r.kind >= R_READ && e.r.kind <= R_COPY && e.r.kind != R_BLOCK_END && thread_of(w).arrived)
    launches[w.launch].clusters[block_of(w).cluster].split = true;  // after its arrival, and before its wait
  switch (e.r.kind) {
    case R_THREAD:
      w = {e.rank, at ? find_launch(e.rank, at) : e.rank, e.r.site, e.r.bytes};
      if (w.block >= MOST_BLOCKS || w.thread >= 1 << 16) throw std::runtime_error("a block or a thread that cannot be");
      break;
    case R_READ: shadow_->access(w, at, e.r.bytes, false, e.r.mode, e.r.site, false); break;
    case R_WRITE: shadow_->access(w, at, e.r.bytes, true, e.r.mode, e.r.site, false); break;
    case R_STRONG_READ: case R_STRONG_WRITE: case R_STRONG_UPDATE: strong(e, w); break;
    case R_FENCE: fence(e, w); break;
    case R_BARRIER_BLOCK: note(e, w), barrier(w, {}, true, e.r.bytes); break;
    case R_BARRIER_WARP: case R_BARRIER_SOME: {
      std::vector<uint32_t> members;
      const uint32_t most = launches[w.launch].threads;
      if (e.r.kind == R_BARRIER_WARP) {
        for (uint32_t lane = 0; lane < 32; ++lane)
          if (at >> lane & 1 && w.thread / 32 * 32 + lane < most) members.push_back(w.thread / 32 * 32 + lane);
      } else {
        const auto* bits = reinterpret_cast<const uint32_t*>(e.more);
        for (uint32_t t = 0; t < 1024 && t < most; ++t)
          if (bits[t / 32] >> t % 32 & 1) members.push_back(t);
      }
      note(e, w);
      barrier(w, members, false, e.r.bytes);
      break;
    }
    case R_ARRIVE: {
      Clock& arrived = block_of(w).arrived[e.r.bytes];
      arrived = join(arrived, publishable(w), places);
      break;
    }
    case R_BARRIER_GRID: {
      Launch& l = launches[find_launch(e.rank, at)];
      std::vector<uint32_t> all;
      for (auto& [number, b] : l.blocks) all.push_back(number);
      join_blocks(l, all, l.start, l.start);
      break;
    }
    case R_BLOCK_BEGIN:
      shadow_->begin_shared(e.rank, at & 0xffffffff, at >> 32), block_of(w).cluster = e.r.site;
      launches[w.launch].clusters[e.r.site].blocks.push_back(w.block);
      break;
    case R_CLUSTER_ARRIVE: case R_CLUSTER_OPEN: case R_CLUSTER_WAIT: cluster(e, w); break;
    case R_WAIT_FOR_GRIDS: learn(w, launches[w.launch].serial), note(e, w); break;
    case R_BLOCK_END: {
      Launch& l = launches[w.launch];
      if (l.host) break;
      if (auto found = l.blocks.find(w.block); found != l.blocks.end()) end_block(l, found->second), found->second.threads.clear();
      break;
    }
    case R_COPY: copy(e, w); break;
    case R_COPIES_CLOSE: ++block_of(w).copies[w.thread].groups; break;
    case R_COPIES_DONE: {
      auto& c = block_of(w).copies[w.thread];
      while (c.done.size() + at < c.groups) c.done.push_back(time_of(w));
      break;
    }
    case R_ENQUEUE: case R_HOST_OPERATION: {
      const uint32_t index = new_launch(e.rank, at, e.more[0] & ~(1ull << 63), e.more[0] >> 63);
      launches[index].site = e.r.site, launches[index].call = calls[e.rank];
      launches[index].threads = std::max<uint32_t>(1, std::min<uint32_t>(1024, (uint32_t)e.more[1]));
      launches[index].enqueued = publishable(host), launches[index].enqueued_as = e.r.mode;
      if (e.r.kind == R_HOST_OPERATION) launches[index].threads = 1024, launches[index].by_host = true, begin(index);
      break;
    }
    case R_BEGIN: begin(find_launch(e.rank, at)); break;
    case R_END: end(find_launch(e.rank, at)); break;
    case R_STREAM_JOIN:
      for (uint32_t s = (uint32_t)trace.logs.size(); s < streams_.size(); ++s)
        if (streams_[s].rank == e.rank && (at == ~0ull || s == find_stream(e.rank, at))) learn(host, streams_[s].clock);
      break;
    case R_EVENT_RECORD: tokens_[{e.rank, at}] = streams_[find_stream(e.rank, e.more[0])].clock; break;
    case R_EVENT_WAIT: {
      Stream& s = streams_[find_stream(e.rank, e.more[0])];
      s.clock = join(s.clock, tokens_[{e.rank, at}], places), s.last = ~0u;
      break;
    }
    case R_EVENT_JOIN: learn(host, tokens_[{e.rank, at}]); break;
    case R_SIGNAL: keys_[at] = join(keys_[at], publishable(w), places), note(e, w); break;
    case R_WAIT: learn(w, keys_[at]), note(e, w); break;
    case R_CALL_BEGIN: calls[e.rank] = (uint32_t)at; break;
    case R_MEMORY: shadow_->memory(e.rank, {at, e.more[0], (uint32_t)(e.more[1] >> 32), (uint32_t)e.more[1]}); break;
    default: break;
  }
}

// --- launches and streams ---

uint32_t Machine::find_stream(uint32_t rank, uint64_t name) {
  auto [found, is_new] = streams_by_name_.try_emplace({rank, name}, (uint32_t)streams_.size());
  if (is_new) streams_.push_back({nullptr, 0, 0, false, rank});
  return found->second;
}
uint32_t Machine::new_launch(uint32_t rank, uint64_t name, uint64_t stream, bool blocking) {
  if (launches.size() >= MOST_LAUNCHES) throw std::runtime_error("too many launches");
  const uint32_t index = (uint32_t)launches.size(), s = find_stream(rank, stream);
  Launch l;
  l.rank = rank, l.stream = s, l.operation = streams_[s].begun++;
  streams_[s].blocking = blocking || stream == 0;
  launches.push_back(std::move(l));
  places.push_back({s, launches.back().operation});
  launch_numbers_[(uint64_t)rank << 40 | (name & 0xffffffffff)] = index;
  return index;
}
uint32_t Machine::find_launch(uint32_t rank, uint64_t name) {
  auto found = launch_numbers_.find((uint64_t)rank << 40 | (name & 0xffffffffff));
  return found != launch_numbers_.end() ? found->second : new_launch(rank, name, 0, true);  // from before the recording
}
void Machine::begin(uint32_t index) {
  Launch& l = launches[index];
  if (l.begun || l.host) return;
  l.begun = true;
  const uint32_t main = find_stream(l.rank, 0);
  Stream& mine = streams_[l.stream];
  Clock others = l.enqueued;
  if (l.stream == main) {  // the legacy default stream waits for all that do not opt out, and they for it
    for (Stream& s : streams_)
      if (s.rank == l.rank && s.blocking && &s != &mine) others = join(others, s.clock, places);
  } else if (mine.blocking) {
    others = join(others, streams_[main].clock, places);
  }
  l.start = l.serial = join(others, mine.clock, places);
  // One that may begin early knows what the kernel ahead of it knew in its beginning, until it waits.
  if (l.enqueued_as & BEGINS_EARLY && mine.last != ~0u) l.start = join(others, launches[mine.last].start, places);
  mine.last = l.enqueued_as & A_KERNEL ? index : ~0u;
}
void Machine::end(uint32_t index) {
  Launch& l = launches[index];
  if (l.host) return;
  for (auto& [number, b] : l.blocks) end_block(l, b);
  for (auto& [number, b] : l.blocks) b.threads.clear(), b.base = nullptr;  // when copies were done is asked for still
  Stream& s = streams_[l.stream];
  s.done = std::max(s.done, l.operation + 1);
  s.clock = join(s.clock, join(l.start, l.end, places), places);
  s.clock = with(s.clock, {single(STREAM, l.stream), s.done}, places);
  l.end = l.enqueued = nullptr;  // its start is asked for still
}
}  // namespace races
