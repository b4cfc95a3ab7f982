// Races that were found, once for each pair of places, and their report.
#pragma once
#include <map>
#include <set>
#include <tuple>

#include "machine.h"

namespace races {
struct Access {
  uint64_t time = 0, location = 0, write_number = 0;
  uint32_t launch = 0, block = 0, site = 0, lanes = 0;
  uint32_t dispute = 0;  // that of a later read, if another thread's store to it differs: from 1
  uint16_t warp = 0;
  uint8_t bytes = 0;   // mask in its cell
  uint8_t mode = 0;
  bool write = false, copied = false, strong_write = false;
  unsigned strength() const { return mode & 7; }
  unsigned scope() const { return mode >> 3 & 7; }
  unsigned proxy() const { return mode >> 6; }
};
struct Side {
  Who who;
  uint32_t site = 0, call = 0, name = 0;
  uint8_t mode = 0;
  bool write = false, copied = false;
};
struct Finding {
  uint64_t count = 0, offset = 0, bytes = 0, number = 0;
  std::string memory, kind;
  Side first, second;
  bool read_only = false, proxy = false;
  std::string missing;
  std::vector<Edge> edge;  // none or one: what would have ordered them
  std::vector<Moment> moments;
};
using FindingKey = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, bool, bool>;  // rank and site of both, whether it writes

struct Dispute { FindingKey key; Finding finding; };  // stores of one launch that differ: a race once somebody reads

class Findings {
 public:
  Finding* add(const FindingKey& key);  // null: one more of a known one, or too many
  bool has(const FindingKey& key) const { return all.count(key) != 0; }
  std::map<FindingKey, Finding> all;
  std::vector<FindingKey> order;
};
std::string report(Trace& trace, const Machine& machine, Findings& findings);
void classify(Trace& trace, Findings& findings);
}  // namespace races
