// Who has done what before whom, by the rules of the PTX memory model (docs/races.md names its sections).
#pragma once
#include <map>
#include <memory>
#include <unordered_map>

#include "clock.h"
#include "trace.h"

namespace races {
struct Rules {  // lenient ones say why two accesses are not ordered
  bool any_scope = false;         // all scopes are sys
  bool relaxed_orders = false;    // every strong access acquires and releases
  bool one_proxy = false;         // nobody needs a fence between proxies
};
struct Who {
  uint32_t rank = 0, launch = 0, block = 0, thread = 0;
  bool operator==(const Who& o) const { return launch == o.launch && block == o.block && thread == o.thread; }
};
struct Released {  // by a release pattern, for those that its scope and theirs allow
  Clock clock;
  uint8_t scope;
  Who by;
  uint32_t site;
  bool strict;     // an edge by the model's own rules
};
struct Moment {    // for the timeline
  uint32_t rank = 0, site = 0;
  uint64_t number = 0;
  uint8_t kind = 0, mode = 0;
  Who who;
};
struct Thread {
  Clock own;                       // null: the block's
  uint64_t time = 0;
  std::vector<Released> fences;    // what a later strong write releases
  std::vector<Released> observed;  // what a later fence acquires
  bool arrived = false;            // at its cluster's barrier, which has not opened
};
constexpr uint32_t NO_CLUSTER = ~0u;  // it had begun before the recording
struct BlockState {
  Clock base;
  uint32_t cluster = NO_CLUSTER;
  uint64_t interval = 0;
  std::unordered_map<uint32_t, Thread> threads;  // those that differ from the rest
  std::map<unsigned, Clock> arrived;             // at named barriers, without waiting
  std::vector<Moment> moments;
  struct Copies { uint64_t groups = 0; std::vector<uint64_t> done; };  // when its thread knew that a group was done
  std::unordered_map<uint32_t, Copies> copies;   // by thread
};
struct ClusterState {
  std::vector<uint32_t> blocks;
  Entries arrived;                 // threads that have come to its barrier, and released
  std::vector<Clock> known;        // to them, each once
  bool split = false;              // somebody came without releasing, or went on before all had come
  Clock opened;                    // what those acquire that wait
  Clock before, after;             // of the last thread that did: others know the same
};
struct Launch {
  uint32_t rank = 0, site = 0, stream = 0, threads = 0, call = 0;
  uint64_t operation = 0;
  Clock enqueued, start, end;
  Clock serial;                    // what it would know in the beginning, had it waited for all that is ahead of it in its stream
  std::unordered_map<uint32_t, ClusterState> clusters;
  uint32_t arrived = 0;            // threads, at barriers of clusters that have not opened
  uint8_t enqueued_as = 0;
  bool host = false, begun = false, by_host = false;  // by_host: of torch or Triton
  std::unordered_map<uint32_t, BlockState> blocks;
};
struct Stream { Clock clock; uint64_t begun = 0, done = 0; bool blocking = false; uint32_t rank = 0; uint32_t last = ~0u; };  // last: the kernel at its end, if it is one
struct Location {  // a word that was accessed strongly
  std::vector<Released> released;
  uint64_t writes = 0;
  uint64_t index = 0;
  uint8_t last_scope = 0;          // 0: the last write was weak
  Who last;
  uint64_t last_time = 0;
};
struct Edge { uint32_t released, acquired; Who from, to; uint64_t number; };  // that only lenient rules give

class Shadow;
class Findings;

class Machine {
 public:
  Machine(Trace& trace, Rules rules, Findings& findings);
  ~Machine();
  void run();

  bool knows(const Clock& c, uint32_t launch, uint32_t block, uint32_t warp, uint32_t lanes, uint64_t time) const;
  bool includes(unsigned scope, const Who& a, const Who& b) const;
  bool mutual(unsigned scope_a, const Who& a, unsigned scope_b, const Who& b) const {
    return rules.any_scope || (includes(scope_a, a, b) && includes(scope_b, b, a));
  }
  Launch& launch_of(const Who& w) { return launches[w.launch]; }
  BlockState& block_of(const Who& w);
  const Clock& clock_of(const Who& w);
  uint64_t time_of(const Who& w);

  Trace& trace;
  const Rules rules;
  Findings& findings;
  std::vector<Launch> launches;    // [rank] is the host of that rank
  Places places;
  std::vector<Edge> edges;
  uint64_t events = 0, threads = 0, number = 0;
  std::vector<uint32_t> calls;     // of ranks, now

 private:
  void step(const Event& e);
  void strong(const Event& e, const Who& w);
  void observe(Location& l, const Event& e, const Who& w, bool acquires);
  void publish(Location& l, const Event& e, const Who& w, bool releases, bool update);
  void fence(const Event& e, const Who& w);
  void barrier(const Who& w, const std::vector<uint32_t>& members, bool whole, unsigned number);
  void end_block(Launch& l, BlockState& b);
  void join_blocks(Launch& l, const std::vector<uint32_t>& blocks, Clock all, Clock& to);
  void cluster(const Event& e, const Who& w);
  void copy(const Event& e, const Who& w);
  uint32_t new_launch(uint32_t rank, uint64_t number, uint64_t stream, bool blocking);
  uint32_t find_launch(uint32_t rank, uint64_t number);
  uint32_t find_stream(uint32_t rank, uint64_t number);
  void begin(uint32_t launch);
  void end(uint32_t launch);
  void learn(const Who& w, const Clock& c);
  Clock publishable(const Who& w);
  Thread& thread_of(const Who& w);
  void note(const Event& e, const Who& w);

  std::unique_ptr<Shadow> shadow_;
  std::vector<Who> current_;                                       // of ranks
  std::vector<Stream> streams_;
  std::unordered_map<uint64_t, uint32_t> launch_numbers_, stream_numbers_;  // rank << 40 | number; streams by map below
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> streams_by_name_;
  std::map<std::pair<uint32_t, uint64_t>, Clock> tokens_;
  std::map<uint64_t, Clock> keys_;
};
}  // namespace races
