// The logs of all ranks as one sequence. Nothing in a log is trusted.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "../runtime/events.h"

namespace races {
using emu::Record;

struct SiteText { std::string file, text; int line = 0; };
struct Memory { uint64_t begin, bytes; uint32_t allocation, owner; };

struct Event {
  uint32_t rank;
  Record r;
  const uint64_t* more;  // units behind it
  uint64_t number;       // of the last numbered one
};

class Log {  // of one rank
 public:
  bool open(int descriptor);                   // false: not a log
  const emu::LogHead& head() const { return head_; }
  bool next(Event& e);                         // false: its end, or something malformed
  bool malformed() const { return malformed_; }
  uint64_t next_number() const;                // of the next numbered event, if that is the next event; else 0: it may come at once
  bool at_end() const { return at_ >= end_; }
  void rewind() { at_ = begin_; }
  const std::unordered_map<uint32_t, SiteText>& sites() const { return sites_; }
  void read_sites();                           // and how many calls have a beginning and an end
  unsigned calls() const { return ended_; }

 private:
  unsigned units(const Record& r) const;
  emu::LogHead head_{};
  const char *begin_ = nullptr, *at_ = nullptr, *end_ = nullptr;
  bool malformed_ = false;
  unsigned calls_ = 0, ended_ = 0;
  std::unordered_map<uint32_t, SiteText> sites_;
};

class Trace {
 public:
  bool open(const std::vector<int>& descriptors);
  bool next(Event& e);  // in an order that no thread can tell from the real one
  void rewind();
  std::vector<Log> logs;
  bool truncated = false, broken = false, touched = false;

 private:
  uint64_t last_ = 0;
  bool stopped_ = false;
};
}  // namespace races
