#include "trace.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

using namespace emu;
namespace races {
namespace {
constexpr size_t MOST_SITES = 1 << 20;
bool numbered(uint8_t kind) {
  return kind == R_STRONG_READ || kind == R_STRONG_WRITE || kind == R_STRONG_UPDATE || kind == R_SIGNAL || kind == R_WAIT;
}
}  // namespace

unsigned Log::units(const Record& r) const {
  switch (r.kind) {
    case R_STRONG_READ: case R_STRONG_WRITE: case R_STRONG_UPDATE: case R_COPY: case R_ENQUEUE: case R_EVENT_RECORD: case R_EVENT_WAIT:
    case R_SIGNAL: case R_WAIT: case R_MEMORY: case R_HOST_OPERATION:
      return 1;
    case R_BARRIER_SOME: return 8;
    case R_SITE: return r.bytes;
    default: return 0;
  }
}
bool Log::open(int descriptor) {
  struct stat s = {};
  if (fstat(descriptor, &s) || (uint64_t)s.st_size < LOG_HEAD) return false;
  void* all = mmap(nullptr, s.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (all == MAP_FAILED) return false;
  memcpy(&head_, all, sizeof head_);
  if (head_.magic != LOG_MAGIC || head_.used > (uint64_t)s.st_size - LOG_HEAD || head_.used % sizeof(Record)) return false;
  begin_ = at_ = static_cast<const char*>(all) + LOG_HEAD;
  end_ = begin_ + head_.used;
  return true;
}
bool Log::next(Event& e) {
  if (at_ >= end_) return false;
  memcpy(&e.r, at_, sizeof e.r);
  const unsigned more = units(e.r);
  if (e.r.kind == R_NONE || e.r.kind >= R_KINDS || (uint64_t)(end_ - at_) < (1 + (uint64_t)more) * sizeof(Record)) {
    malformed_ = true;
    at_ = end_;
    return false;
  }
  e.more = reinterpret_cast<const uint64_t*>(at_ + sizeof(Record));
  at_ += (1 + (uint64_t)more) * sizeof(Record);
  return true;
}
uint64_t Log::next_number() const {
  if (at_ >= end_ || (size_t)(end_ - at_) < 2 * sizeof(Record)) return 0;
  Record r;
  memcpy(&r, at_, sizeof r);
  if (!numbered(r.kind)) return 0;
  uint64_t number;
  memcpy(&number, at_ + sizeof r, sizeof number);
  return number;
}
void Log::read_sites() {
  rewind();
  Event e;
  while (next(e)) {
    if (e.r.kind == R_CALL_BEGIN && calls_ == ended_) ++calls_;
    if (e.r.kind == R_CALL_END && calls_ > ended_) ++ended_;
    if (e.r.kind != R_SITE || sites_.size() >= MOST_SITES) continue;
    const char* text = reinterpret_cast<const char*>(e.more);
    const std::string all(text, strnlen(text, e.r.bytes * sizeof(Record)));
    const size_t one = all.find('\n'), two = one == std::string::npos ? one : all.find('\n', one + 1);
    if (two == std::string::npos) continue;
    SiteText& s = sites_[e.r.site];
    s.file = all.substr(0, one), s.line = atoi(all.c_str() + one + 1), s.text = all.substr(two + 1);
  }
  rewind();
}

bool Trace::open(const std::vector<int>& descriptors) {
  logs.resize(descriptors.size());
  for (size_t r = 0; r < descriptors.size(); ++r) {
    if (!logs[r].open(descriptors[r])) return false;
    logs[r].read_sites();
    truncated |= logs[r].head().truncated != 0;
    broken |= logs[r].head().broken != 0 || logs[r].malformed();
    touched |= (logs[r].head().broken & TOUCHED) != 0;
  }
  return true;
}
void Trace::rewind() {
  for (Log& log : logs) log.rewind();
  last_ = 0, stopped_ = false;
}
bool Trace::next(Event& e) {
  if (stopped_) return false;
  size_t chosen = logs.size();
  uint64_t smallest = ~0ull;
  for (size_t r = 0; r < logs.size(); ++r) {
    if (logs[r].at_end()) {
      if (logs[r].head().truncated) return stopped_ = true, false;  // what others synchronised with may be missing from here on
      continue;
    }
    const uint64_t number = logs[r].next_number();
    if (number < smallest || chosen == logs.size()) smallest = number, chosen = r;
    if (!number) break;
  }
  if (chosen == logs.size()) return false;
  if (smallest) last_ = smallest;
  e.rank = (uint32_t)chosen, e.number = last_;
  if (logs[chosen].next(e)) return true;
  broken = true;
  return next(e);
}
}  // namespace races
