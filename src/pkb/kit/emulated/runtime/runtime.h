// What the parts of the runtime share: blocks and kernels (runtime.cpp), streams and host functions (streams.cpp).
#pragma once
#include <pthread.h>

#include <string>

#include "blocks.h"

extern "C" char* emu_shared_arena;
extern "C" void emu_poll(const void* address, unsigned bytes, const EmuAt* at);

namespace emu {
constexpr unsigned SMS = 132;
constexpr double SLOWER = 16;
constexpr unsigned LOOK_NS = 800;   // a signal to a peer and back takes an H200 1.68 us (docs/probe.md), so a look less than half
constexpr unsigned LOOKS = 2000;    // that a thread takes in one turn, where the device waits in its own time
constexpr unsigned STOP_US = 20000;
constexpr unsigned HOLD_US = 30000;
constexpr unsigned MOST_HOLDS = 12;  // of threads, in a batch

struct Kernel {
  std::string name;
  Dim grid, block, cluster{1, 1, 1};
  bool early = false;  // it may begin before what is ahead of it in its stream has ended
  size_t shared;
  std::map<std::pair<const void*, unsigned>, size_t> statics;  // where static shared memory lies, in every block
  size_t used = 0;
  Cluster* begun = nullptr;  // the last
  void (*body)(void*);
  void* argument;
  size_t argument_bytes = 0;
  void (*free)(void*);
  unsigned total, next = 0, live, spread, launch = 0;
  Gate grid_gate;
  std::vector<Block*> active;

  unsigned together() const { return cluster.x * cluster.y * cluster.z; }
  unsigned threads() const { return block.x * block.y * block.z; }
  unsigned resident() const;
  bool over() const { return next == total && active.empty(); }
  void open_grid();
  bool step();
  void grow(size_t count);
  void abandon();
};

// kernel (null: it moves again), block, thread, threads that look at memory, where the first looks, what is there, the instruction
using Report = void (*)(const char*, unsigned, unsigned, unsigned, const void*, uint64_t, const char*, int);

extern Block* block;                // whose thread runs
extern volatile bool in_fiber;      // a fiber runs, and not in a function of the runtime
extern thread_local bool on_fiber;  // this thread of the system runs a fiber, in whatever function
extern char *const places_begin;    // threadIdx and its like
extern const size_t places_bytes;
void prepare_places();              // shared memory has its addresses
void make_slot(Block& b, unsigned slot);
void begin_shared(Block& b);               // of a block that begins
void check_shared(const Block& b);         // and of one that ends
void end_shared(const Block& b);           // the same, in a cluster
void join_cluster(Block& b, unsigned number);  // the block that is begun as so many'th
void leave_cluster(Block& b);              // the current thread ends
void explain_fault(const void* address, const void* code);  // does not return if it lies behind the dynamic shared memory of the block
struct Untimed {  // the timer keeps away, as whoever called may have seen to already
  const bool before = in_fiber;
  Untimed() { in_fiber = false; }
  ~Untimed() { in_fiber = before; }
};
extern std::minstd_rand random_numbers;
extern std::string failure;  // what is not emulated and was asked for; running kernels are abandoned then
void leave();                // the current thread stops here until its turn comes again
void finish_arriving(const Fiber& f);  // copies that an mbarrier waits for too
void forget_arriving(const Block& b);  // nobody waits at the barriers of a block that has ended
void finish_stores(Fiber& f, unsigned but, bool read, bool end_of_thread);
[[noreturn]] void fail(const char* what, const void* address, const void* code = nullptr);  // `code`: where in the machine code
extern thread_local bool may_report;  // a thread that may not must not wait for the interpreter either: its owner may wait for us
double seconds();
void begin_running();
void end_running();
void rest(bool moved, const std::vector<Kernel*>& running);
extern const Block* hurried;  // its threads look as fast as they can, in their next turn
extern unsigned looks_each;   // that each of them has in it
extern uint64_t late_ns;      // that a peer is late by, of which the device has not waited yet
extern uint64_t waited_ns;    // of the device's time, beside what the host's clock says
extern unsigned stops;        // how often the device still stands still for a while, when it has waited
extern bool holds;            // threads are held between their signals
void begin_holds(bool wanted);
void may_hold(uint64_t address);  // the current thread has just told others something, or is about to, or was told
extern unsigned plain_writes;  // of any thread: who writes between two looks does not only wait
void look_again(const void* address, unsigned bytes);  // a volatile read that is not recorded: a spin, if it only looks again
}  // namespace emu
