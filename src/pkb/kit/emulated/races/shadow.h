// The last accesses to every byte, and what is wrong with the next one.
#pragma once
#include "findings.h"
#include "machine.h"

namespace races {
class Shadow {
 public:
  explicit Shadow(Machine& machine);
  void access(const Who& w, uint64_t address, uint32_t bytes, bool write, uint8_t mode, uint32_t site, bool copied);
  Location& location(const Who& w, uint64_t address);
  void memory(uint32_t rank, const Memory& m);
  void begin_shared(uint32_t rank, uint64_t slot, uint64_t dynamic);
  void proxy_fence(const Who& w, const Clock& seen);

 private:
  static constexpr unsigned CELL = 8, CELLS = 512, PAGE = CELL * CELLS;
  struct Page {
    std::vector<Access> cells[CELLS];
    bool locations = false;
  };
  struct Spot { uint64_t object, offset; };
  Spot resolve(uint32_t rank, uint64_t address);
  std::string name_of(uint64_t object) const;
  Page& page(uint64_t object, uint64_t offset);
  void check(const Who& w, const Clock& mine, Access& now, std::vector<Access>& cell, const Spot& spot);
  Finding described(const Access& e, const Who& other, const Access& now, const Who& w, const Spot& spot) const;
  uint32_t disputed(const FindingKey& key, const Access& e, const Who& other, const Access& now, const Who& w, const Spot& spot);
  void insert(std::vector<Access>& cell, const Access& now);

  Machine& m_;
  std::vector<std::vector<Memory>> memory_;  // of ranks, by address
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> symmetric_;
  std::vector<std::pair<uint32_t, uint32_t>> symmetric_names_;
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
  std::unordered_map<uint64_t, Location> locations_;
  std::map<std::pair<uint32_t, uint32_t>, Clock> proxied_;  // by launch and block: visible to the asynchronous proxy
  std::map<std::pair<uint32_t, uint64_t>, uint64_t> dynamic_;  // by rank and slot: where its dynamic shared memory begins
  std::vector<Dispute> disputes_;
  std::map<FindingKey, uint32_t> dispute_numbers_;
  uint64_t last_page_ = ~0ull, last_location_ = 0;
  Page* last_ = nullptr;
};
}  // namespace races
