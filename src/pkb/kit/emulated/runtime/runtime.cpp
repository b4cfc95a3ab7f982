// Runs kernels on a CPU. The threads of a block are fibers: one runs until it comes to a barrier or looks at memory that others
// change, then another one, in random order. As many blocks run at once as an H200 would hold, but a block is begun only when
// those before it wait, or by chance. One OS thread runs them all: ranks are processes, and have their cores for each other.
#include "record.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>

#include "board.h"
#include "sites.h"

#if defined(__x86_64__)
__asm__(".text\n.globl emu_switch\n.hidden emu_switch\nemu_switch:\n push %rbp\n push %rbx\n push %r12\n push %r13\n"
        " push %r14\n push %r15\n mov %rsp, (%rdi)\n mov (%rsi), %rsp\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n"
        " pop %rbx\n pop %rbp\n ret\n");
#endif

// What kernels read and nobody shares, side by side: the recorder leaves these addresses out.
#define PLACE __attribute__((section("emu_places")))
extern "C" {
PLACE emu::Dim emu_thread = {}, emu_block = {}, emu_block_dim = {}, emu_grid_dim = {}, emu_cluster_dim = {};
PLACE char* emu_shared_arena = nullptr;
extern char __start_emu_places[], __stop_emu_places[];
}

namespace emu {
Block* block;
volatile bool in_fiber = false;
__attribute__((tls_model("initial-exec"))) thread_local bool on_fiber = false;
char* const places_begin = __start_emu_places;
const size_t places_bytes = (size_t)(__stop_emu_places - __start_emu_places);
std::minstd_rand random_numbers(1);
std::string failure;
thread_local bool may_report = true;

namespace {
Context scheduler;
pthread_t scheduler_thread;
volatile unsigned switches = 0, switches_at_tick = 0;
std::vector<Block*> spare_blocks;
unsigned slots_made = 0;
unsigned looks_left = 0;  // that the running thread may take before others have their turn

Fiber& me() { return *block->fibers[block->current]; }
}  // namespace
void leave() {
  in_fiber = false;
  emu_switch(&me().context, &scheduler);
  in_fiber = true;
}
namespace {
struct Inside {  // the timer keeps away from the runtime's own state
  Inside() { in_fiber = false; }
  ~Inside() { in_fiber = true; }
};
void entry() {
  for (;;) {
    in_fiber = true;
    block->kernel->body(block->kernel->argument);
    in_fiber = false;
    settle();
    finish_stores(me(), 0, false, true);  // bulk copies are done when a kernel is
    me().done = true;
    block->left();
    leave_cluster(*block);
    --block->kernel->live;
    block->kernel->open_grid();
    emu_switch(&me().context, &scheduler);
  }
}
void wait_at(const unsigned* gate, unsigned generation) {
  Fiber& f = me();
  f.gate = gate, f.generation = generation;
  leave();
}
void finish_copies(Fiber& f, unsigned but) {
  size_t end = f.copies.size();
  for (; end && (f.copies[end - 1].to || but--); --end) {}  // not the last groups, nor what is not closed yet
  for (size_t i = 0; i < end; ++i) {
    const Copy& c = f.copies[i];
    if (!c.to) continue;
    if (c.bytes) memcpy(c.to, c.from, c.bytes);
    memset(static_cast<char*>(c.to) + c.bytes, 0, c.zeros);
  }
  f.copies.erase(f.copies.begin(), f.copies.begin() + end);
}
void on_tick(int) {
  const int error = errno;
  if (!pthread_equal(pthread_self(), scheduler_thread)) {
    pthread_kill(scheduler_thread, SIGVTALRM);
  } else if (in_fiber && switches == switches_at_tick) {
    forget_store();
    me().polled = true;  // it may spin on a plain load: others must go on
    leave();
  } else {
    switches_at_tick = switches;
  }
  errno = error;
}
const void* faulting_code(void* context) {
  const mcontext_t& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(machine.pc);
#else
  return nullptr;
#endif
}
// What a GPU reports as a fault of a kernel. Outside of kernels whoever handled the signal before has it.
struct sigaction before_ill, before_segv, before_bus;
void on_fault(int number, siginfo_t* info, void* context) {
  const void* code = faulting_code(context);
  if (number != SIGILL && on_fiber) explain_fault(info->si_addr, code);  // also in functions of the runtime that copy for a thread
  if (in_fiber && pthread_equal(pthread_self(), scheduler_thread))
    fail(number == SIGILL ? "misaligned address" : "illegal memory access", number == SIGILL ? nullptr : info->si_addr, code);
  sigaction(number, number == SIGILL ? &before_ill : number == SIGBUS ? &before_bus : &before_segv, nullptr);
}
void set_timer(long microseconds) {
  const itimerval value{{0, microseconds}, {0, microseconds}};
  setitimer(ITIMER_VIRTUAL, &value, nullptr);
}
Block* start_block(Kernel& k) {
  Block* b;
  if (spare_blocks.empty()) {
    if (slots_made == ARENA_SLOTS) return nullptr;
    b = new Block;
    make_slot(*b, slots_made++);
  } else {
    b = spare_blocks.back();
    spare_blocks.pop_back();
  }
  const unsigned threads = k.threads();
  b->kernel = &k;
  join_cluster(*b, k.next++);
  note_block(k, linear_index(*b), BEGUN);
  b->live = threads;
  b->warps.assign((threads + 31) / 32, Warp{});
  b->words.assign(b->warps.size() * 32, Words{});
  for (Gate& g : b->named) g = Gate{};
  b->statics.clear();
  begin_shared(*b);
  record_block(R_BLOCK_BEGIN, *b, b->slot | (uint64_t)(b->dynamic - b->shared) << 32, (k.next - 1) / k.together());
  for (unsigned t = 0; t < threads; ++t) {
    Fiber* f = take_fiber(entry);
    if (!f) fail("no memory for the stacks of threads", nullptr);
    b->fibers.push_back(f);
    b->warps[t / 32].live |= 1u << t % 32;
  }
  return b;
}
void end_block(Block* b, bool abandoned) {
  if (!abandoned) check_shared(*b);
  if (b->kernel->together() > 1 && !abandoned) end_shared(*b);
  forget_arriving(*b);
  record_block(R_BLOCK_END, *b, b->slot, 0);
  for (Fiber* f : b->fibers) {
    if (*reinterpret_cast<uint64_t*>(f->stack) != CANARY) fail("a thread's stack is too small", nullptr);
    if (abandoned) prepare(&f->context, f->stack, entry);
    spare_fibers().push_back(f);
  }
  b->fibers.clear();
  note_block(*b->kernel, linear_index(*b), ENDED);
  Cluster* c = b->cluster;
  if (++c->ended < b->kernel->together()) return;  // others may look at its shared memory still
  spare_blocks.insert(spare_blocks.end(), c->blocks.begin(), c->blocks.end());
  delete c;
}
// One pass over the threads of a block: whether anything happened.
bool pass(Block& b) {
  bool moved = false;
  const Kernel& k = *b.kernel;
  const unsigned threads = k.threads();
  const Order order(random_numbers, threads);
  block = &b;
  emu_block = b.index, emu_block_dim = k.block, emu_grid_dim = k.grid, emu_cluster_dim = k.cluster;
  for (unsigned n = 0; n < threads && failure.empty(); ++n) {
    const unsigned t = order.at(n);
    Fiber& f = *b.fibers[t];
    if (f.done || f.blocked()) continue;
    if (f.held && seconds() < f.held) continue;
    f.gate = nullptr, f.polled = false, f.held = 0;
    b.current = t;
    emu_thread = {t % k.block.x, t / k.block.x % k.block.y, t / k.block.x / k.block.y};
    switches = switches + 1;
    looks_left = &b == hurried ? looks_each : 0;
    on_fiber = true;
    emu_switch(&scheduler, &f.context);
    on_fiber = false;
    moved |= !f.polled;
  }
  if (&b == hurried) hurried = nullptr;
  return moved;
}
}  // namespace

unsigned plain_writes = 0;
// A thread waits that sees what it has seen before, at one address or at several in turn, and has written nothing in between.
// Others' writes count too: then it is taken to wait at its next look, when they have had their turn.
void look_again(const void* address, unsigned bytes) {
  static const EmuAt at{"volatile", nullptr, 0};
  uint64_t now = 0;
  memcpy(&now, address, std::min(bytes, 8u));
  Look& look = me().look;
  const bool idle = me().writes == plain_writes;
  const bool again = (look.address == address && look.value == now) || me().unchanged(address, now);
  look = {address, now, &at};
  if (again && idle && others_see((uint64_t)address)) emu_poll(address, bytes, &at);
  me().writes = plain_writes;
}
// A thread of a GPU may stop for as long as it likes between two instructions, and here none does: it runs until it waits. Whoever
// lets others go and tidies up behind them is right by that alone. So single threads are held after a strong write of symmetric
// memory, before one that is volatile, and when a wait is over; the rest of their device goes on, and so do peers. Of n places the
// k-th is one with a chance of few / (few + k): many of the first, and some however many there are.
bool holds = false;
static unsigned held_count = 0, hold_places = 0, few = 1;
void begin_holds(bool wanted) { holds = wanted, held_count = hold_places = 0, few = 1u << random_numbers() % 4; }
void may_hold(uint64_t address) {
  if (!holds || emu_recording_now || held_count == MOST_HOLDS) return;
  if (std::none_of(watched.begin(), watched.end(), [=](const Range& r) { return r.begin <= address && address < r.end; })) return;
  if (random_numbers() % (few + hold_places++) >= few) return;
  ++held_count;
  me().held = seconds() + 1e-6 * (HOLD_US / 3 + random_numbers() % HOLD_US);
  me().polled = true;
  leave();
  in_fiber = false;
}
static bool is_strong(const EmuAt& at) {
  static std::map<const char*, bool> known;
  const auto [found, is_new] = known.try_emplace(at.what);
  if (is_new) found->second = meaning(at.what).order != WEAK;
  return found->second;
}
void Kernel::open_grid() {
  if (grid_gate.arrived && grid_gate.arrived == live) {
    record_plain(R_BARRIER_GRID, launch);
    grid_gate.arrived = 0, ++grid_gate.generation;
  }
}
static unsigned fewer_blocks = 0;  // that run at once, in place of as many as an H200 holds
unsigned Kernel::resident() const {
  if (fewer_blocks) return fewer_blocks;
  const unsigned by_threads = 2048 / std::max(1u, (threads() + 31) / 32 * 32);
  const unsigned by_shared = shared ? (unsigned)((228u << 10) / (shared + 1024)) : 32;
  return SMS * std::max(1u, std::min({by_threads, by_shared, 32u}));
}
bool Kernel::step() {
  const size_t most = resident();
  if (active.empty() || (next < total && active.size() < std::min<size_t>(most, spread))) grow(1);
  bool moved = false;
  for (size_t i = 0; i < active.size() && failure.empty();) {
    Block* b = active[i];
    moved |= pass(*b);
    if (b->live == 0) {
      active[i] = active.back(), active.pop_back();
      end_block(b, false);
      moved = true;
    } else {
      ++i;
    }
  }
  if (!moved && next < total && active.size() < most) {
    grow(std::min<size_t>(active.size(), most - active.size()));  // those that run all wait: perhaps for one of these
    moved = true;
  }
  return moved;
}
void Kernel::grow(size_t count) {
  while (count-- && next < total) {
    Block* b = start_block(*this);
    if (!b) return;
    active.insert(active.begin() + random_numbers() % (active.size() + 1), b);
    if (next % together()) ++count;  // a cluster begins as one
  }
}
void Kernel::abandon() {
  for (Block* b : active) end_block(b, true);
  active.clear();
  next = total;
}

double seconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
unsigned Block::linear() const { return index.x + kernel->grid.x * (index.y + kernel->grid.y * index.z); }
void begin_running() {
  scheduler_thread = pthread_self();
  static bool prepared = false;
  if (!prepared) {
    prepared = true;
    prepare_places();
    struct sigaction action = {};
    action.sa_handler = on_tick;
    action.sa_flags = SA_NODEFER | SA_RESTART;
    sigaction(SIGVTALRM, &action, nullptr);
    struct sigaction fault = {};
    fault.sa_sigaction = on_fault;
    fault.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGILL, &fault, &before_ill);  // the compiler's check of an address traps so
    sigaction(SIGSEGV, &fault, &before_segv);
    sigaction(SIGBUS, &fault, &before_bus);
  }
  set_timer(4000);
  weak_enter();
}
void end_running() {
  weak_leave();
  set_timer(0);
}
}  // namespace emu

using namespace emu;
extern "C" {
void emu_poll(const void* address, unsigned bytes, const EmuAt* at) {
  Fiber& f = me();
  uint64_t now = 0;
  if (looks_left && !emu_recording_now && f.look.address == address) {  // the same as below, in no time
    memcpy(&now, address, std::min(bytes, 8u));
    if (f.look.value == now) {
      --looks_left;
      return;
    }
  }
  Inside inside;
  settle();
  weak_look((uint64_t)address, bytes);
  memcpy(&now, address, std::min(bytes, 8u));
  const bool before = f.look.address == address, waited = before && f.spins;
  const bool same = (before && f.look.value == now) || (late_ns && f.unchanged(address, now));
  f.look = {address, now, at};
  f.spins = same;
  if (waited && !same && stops) --stops, usleep(STOP_US);
  if (same && looks_left) {
    --looks_left;
    return;
  }
  f.polled = same;
  leave();
  in_fiber = false;
  if (waited && !same) may_hold((uint64_t)address);
}
void emu_sleep(unsigned ns) {
  Inside inside;
  settle();
  const unsigned looks = 1 + ns / LOOK_NS;
  if (looks < looks_left) {
    looks_left -= looks;
    return;
  }
  me().polled = true;
  leave();
  in_fiber = false;
}
void emu_yield() { emu_sleep(0); }
void emu_sync_named(unsigned number, unsigned threads) {
  Inside inside;
  settle();
  me().last = {};
  me().look = {};
  Gate& g = block->named[number & 15];
  const unsigned generation = g.generation;
  g.needed = threads;
  ++g.arrived;
  g.who[block->current / 32] |= 1u << block->current % 32;
  const void* code = __builtin_return_address(0);
  if (threads && g.arrived >= threads) block->open(g, false, code);
  else block->open_named(code);
  if (g.generation == generation) wait_at(&g.generation, generation);
  in_fiber = false;
}
void emu_arrive_named(unsigned number, unsigned threads) {
  Inside inside;
  Gate& g = block->named[number & 15];
  g.needed = threads;
  record_arrival(number & 15, __builtin_return_address(0));
  if (++g.arrived >= threads) block->open(g, false, nullptr);
}
static void meet_warp(unsigned mask, bool orders) {
  Inside inside;
  settle();
  me().last = {};
  Warp& warp = block->warps[block->current / 32];
  const unsigned bit = 1u << block->current % 32;
  if (!(mask & bit)) fail("a lane that is not in the mask of its own warp instruction", nullptr);
  if ((mask & warp.live) == bit) return;
  WarpGate* mine = nullptr;
  for (WarpGate& g : warp.gates)
    if (g.arrived && g.mask == mask && g.orders == orders) mine = &g;
  for (WarpGate& g : warp.gates)
    if (!mine && !g.arrived) mine = &g, g.mask = mask, g.orders = orders;
  if (!mine) fail("more than eight groups of one warp wait at once", nullptr);
  const unsigned generation = mine->generation;
  mine->arrived |= bit;
  warp.open(*block, block->current / 32);
  if (mine->generation == generation) wait_at(&mine->generation, generation);
  in_fiber = false;
}
void emu_sync_warp(unsigned mask) { meet_warp(mask, true); }
void emu_meet_warp(unsigned mask) { meet_warp(mask, false); }
void emu_sync_grid() {
  Inside inside;
  settle();
  me().last = {};
  Kernel& k = *block->kernel;
  const unsigned generation = k.grid_gate.generation;
  ++k.grid_gate.arrived;
  k.open_grid();
  if (k.grid_gate.generation == generation) wait_at(&k.grid_gate.generation, generation);
  in_fiber = false;
}
void emu_limit_blocks(unsigned count) { fewer_blocks = count; }
void emu_board(Board* shared) { board = shared; }
void emu_board_watch(uint64_t begin, uint64_t bytes) { watched.push_back({begin, begin + bytes}); }
void emu_set_word(const void* address, const EmuAt* at) {
  if (!board || !in_fiber) return;
  Inside inside;
  note_set((uint64_t)address, *block);
  if (holds && is_strong(*at)) may_hold((uint64_t)address);
}
char* emu_shared() { return block->dynamic; }
void* emu_shared_static(const void* function, unsigned number, size_t bytes, size_t align) {
  Inside inside;
  void*& place = block->statics[{function, number}];
  if (!place) {
    Kernel& k = *block->kernel;
    auto [found, is_new] = k.statics.try_emplace({function, number});
    if (is_new) found->second = (k.used + align - 1) / align * align, k.used = found->second + bytes;
    if (k.used + k.shared > SHARED_MOST + 1024) fail("more shared memory than a block can have", nullptr);
    place = block->shared + found->second;
    if (k.together() == 1) memset(place, 0xff, bytes);  // that of a cluster was filled when it began: others may have written there
  }
  return place;
}
Words* emu_warp() { return &block->words[block->current / 32 * 32]; }
unsigned emu_lane() { return block->current % 32; }
unsigned emu_linear_thread() { return block->current; }
void emu_copy_later(void* to, const void* from, unsigned bytes, unsigned zeros, const EmuAt* at) {
  Inside inside;
  record_copy(to, from, bytes, zeros, __builtin_return_address(0), at);
  me().copies.push_back({to, from, bytes, zeros});
}
void emu_copies_close() { Inside inside; record_plain(R_COPIES_CLOSE, 0); me().copies.push_back({nullptr, nullptr, 0, 0}); }
void emu_copies_done(unsigned but) { Inside inside; record_plain(R_COPIES_DONE, but), finish_arriving(me()), finish_copies(me(), but); }
// A thread that looks at the clock may be waiting for it. The device's time passes more slowly than the host's, since all that it
// does takes far longer here than there: what a kernel calls long should be long.
uint64_t emu_now_ns() {
  if (in_fiber) emu_yield();
  return (uint64_t)(seconds() * 1e9 / SLOWER) + waited_ns;
}
void emu_fault(const char* what, const void* address) {
  in_fiber = false;
  fflush(stdout);  // what the kernel has printed, perhaps why it ends itself
  fail(what, address, static_cast<const char*>(__builtin_return_address(0)) - 1);
}
void emu_unsupported(const char* what) {
  in_fiber = false;
  failure = what;
  for (;;) emu_switch(&me().context, &scheduler);  // and never again here
}
void emu_unsupported_at(const char* what, const char* file, int line) {
  const char* name = strrchr(file, '/');
  emu_unsupported((std::string(what) + " (" + (name ? name + 1 : file) + ", line " + std::to_string(line) + ", kernel " + block->kernel->name + ")").c_str());
}
}
