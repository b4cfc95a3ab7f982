// Runs kernels on a CPU. A block is an OS thread at a time, of which there are as many as blocks are resident: a block that
// waits for one that cannot start waits for ever, as on a GPU. The threads of a block are fibers: one runs until it comes to
// a barrier or polls memory, then another one, in random order. Blocks and polls are held up at random.
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <atomic>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

struct Dim { unsigned x, y, z; };
struct Words { uint64_t word[2]; };
extern "C" __thread Dim emu_thread, emu_block, emu_block_dim, emu_grid_dim;
__thread Dim emu_thread, emu_block, emu_block_dim, emu_grid_dim;

namespace {
constexpr size_t STACK = 128 << 10;
constexpr uint64_t CANARY = 0x5afe57ac5afe57acull;

#if defined(__x86_64__)  // without a system call, which swapcontext makes twice
using Context = void*;
__asm__(".text\nemu_switch:\n push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        " mov %rsp, (%rdi)\n mov (%rsi), %rsp\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");
extern "C" void emu_switch(Context* from, Context* to);
void prepare(Context* c, char* stack, void (*entry)()) {
  void** top = reinterpret_cast<void**>((uintptr_t)(stack + STACK) & ~(uintptr_t)63);
  *--top = nullptr;  // where `entry` would return to
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  *c = top;
}
#else
using Context = ucontext_t;
void emu_switch(Context* from, Context* to) { swapcontext(from, to); }
void prepare(Context* c, char* stack, void (*entry)()) {
  getcontext(c);
  c->uc_stack.ss_sp = stack, c->uc_stack.ss_size = STACK, c->uc_link = nullptr;
  makecontext(c, entry, 0);
}
#endif

struct Group {  // who meets at a barrier; a thread that has ended counts as come
  unsigned live, arrived, generation;
  void open() { if (arrived && arrived == live) arrived = 0, ++generation; }
};
struct Copy { void* to; const void* from; unsigned bytes; };  // `to` null: the end of a group
struct Fiber {
  Context context;
  std::unique_ptr<char[]> stack;
  bool done = true, polled = false;
  Group* at = nullptr;
  unsigned generation = 0;
  std::vector<Copy> copies;
};
struct Block {
  std::vector<Fiber> fibers;
  std::vector<Group> warps;
  Group whole;
  std::vector<Words> words;
  std::vector<char> memory;
  char* shared;
  Context scheduler;
  unsigned current;
  void (*body)(void*);
  void* argument;
};
__thread Block* block;
std::mutex mutex;
std::vector<std::unique_ptr<Block>> spare;  // with their stacks
std::atomic<unsigned> seed{1};
double limit_s = 60;
struct Cast { char* const* table; unsigned world; } casts[256];

Fiber& me() { return block->fibers[block->current]; }
void leave() { emu_switch(&me().context, &block->scheduler); }
void finish_copies(Fiber& f, unsigned but) {
  size_t end = f.copies.size();
  for (; end && (f.copies[end - 1].to || but--); --end) {}  // not the last groups, nor what is not closed yet
  for (size_t i = 0; i < end; ++i) {
    const Copy& c = f.copies[i];
    if (!c.to) continue;
    if (c.bytes) memcpy(c.to, c.from, c.bytes);
    memset(static_cast<char*>(c.to) + c.bytes, 0, 16 - c.bytes);
  }
  f.copies.erase(f.copies.begin(), f.copies.begin() + end);
}
void entry() {
  for (;;) {
    block->body(block->argument);
    Fiber& f = me();
    f.done = true;
    --block->whole.live, block->whole.open();
    Group& warp = block->warps[block->current / 32];
    --warp.live, warp.open();
    leave();
  }
}
void meet(Group& g) {
  Fiber& f = me();
  f.generation = g.generation;
  ++g.arrived, g.open();
  if (g.generation == f.generation) {
    f.at = &g;
    leave();
  }
}
[[noreturn]] void fail(const char* what, const void* address) {
  char text[256];
  const int n = snprintf(text, sizeof text, "emulator: %s (%p) in thread %u of block %u\n", what, address, emu_thread.x,
                         emu_block.x);
  if (write(2, text, n) < 0) abort();
  abort();
}
double seconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

void run_block(Block& b, unsigned threads, unsigned shared_bytes, std::minstd_rand& random) {
  block = &b;
  b.memory.assign(shared_bytes + 256, (char)0xff);  // NaN: nothing may rely on zeroed shared memory
  b.shared = b.memory.data() + (-(uintptr_t)b.memory.data() & 127);
  b.words.assign(threads + 32, Words{});
  b.whole = Group{threads, 0, 0};
  b.warps.assign((threads + 31) / 32, Group{});
  while (b.fibers.size() < threads) {
    Fiber& f = b.fibers.emplace_back();
    f.stack.reset(new char[STACK]);
    memcpy(f.stack.get(), &CANARY, 8);
    prepare(&f.context, f.stack.get(), entry);
  }
  for (unsigned t = 0; t < threads; ++t) {
    ++b.warps[t / 32].live;
    b.fibers[t].done = false, b.fibers[t].at = nullptr, b.fibers[t].copies.clear();
  }
  unsigned idle = 0;
  double give_up = 0;
  if (random() % 4 == 0) usleep(random() % 300);  // blocks need not start together
  for (unsigned left = threads; left;) {
    const unsigned start = random() % threads, stride = random() % 2 ? 1 : threads - 1;
    unsigned ran = 0, polled = 0;
    for (unsigned n = 0; n < threads; ++n) {
      const unsigned t = (start + (uint64_t)n * stride) % threads;
      Fiber& f = b.fibers[t];
      if (f.done || (f.at && f.at->generation == f.generation)) continue;
      f.at = nullptr, f.polled = false;
      b.current = t;
      emu_thread = {t % emu_block_dim.x, t / emu_block_dim.x % emu_block_dim.y, t / emu_block_dim.x / emu_block_dim.y};
      emu_switch(&b.scheduler, &f.context);
      left -= f.done;
      ++ran, polled += f.polled;
    }
    if (left && !ran) fail("threads of a block wait for each other at different barriers", nullptr);
    if (ran > polled) {
      idle = 0;
      if (random() % 64 == 0) usleep(random() % 200);
    } else if (++idle < 50) {
      sched_yield();
    } else {
      if (idle == 50) give_up = seconds() + limit_s;
      if (seconds() > give_up) fail("a block waits and nothing comes", nullptr);
      usleep(idle < 500 ? 50 : 500);
    }
  }
  for (unsigned t = 0; t < threads; ++t)
    if (memcmp(b.fibers[t].stack.get(), &CANARY, 8)) fail("a thread's stack is too small: raise STACK", nullptr);
}
}  // namespace

extern "C" {
void emu_poll() { me().polled = true; leave(); }
void emu_sync() { meet(block->whole); }
void emu_sync_warp() { meet(block->warps[block->current / 32]); }
char* emu_shared() { return block->shared; }
Words* emu_warp() { return &block->words[block->current / 32 * 32]; }
unsigned emu_lane() { return block->current % 32; }
void emu_copy_later(void* to, const void* from, unsigned bytes) { me().copies.push_back({to, from, bytes}); }
void emu_copies_close() { me().copies.push_back({nullptr, nullptr, 0}); }
void emu_copies_done(unsigned but) { finish_copies(me(), but); }
uint64_t emu_now_ns() { return (uint64_t)(seconds() * 1e9); }
void emu_fault(const char* what, const void* address) { fail(what, address); }

// A multicast address: 0x70 in bits 48 to 55, the number of the buffer in bits 40 to 47, the place in it below.
void emu_set_multicast(unsigned number, void* table, unsigned world) {
  casts[number] = {static_cast<char* const*>(table), world};
}
char* emu_multicast(unsigned member, uint64_t address) {
  const Cast& c = casts[address >> 40 & 255];
  if (address >> 48 != 0x70 || !c.world) fail("not a multicast address", reinterpret_cast<void*>(address));
  return member < c.world ? c.table[member] + (address & ((1ull << 40) - 1)) : nullptr;
}
void emu_configure(unsigned new_seed, double limit) { seed = new_seed, limit_s = limit; }

void emu_launch(void (*body)(void*), void* argument, const unsigned* grid, const unsigned* threads, unsigned shared,
                unsigned resident) {
  const unsigned blocks = grid[0] * grid[1] * grid[2], workers = blocks < resident ? blocks : resident;
  const unsigned mine = seed += 7919;
  const bool backwards = mine / 7919 % 2;
  std::atomic<unsigned> next{0};
  auto work = [&](unsigned number) {
    std::minstd_rand random(mine + 31 * number + 1);
    random.discard(3);
    std::unique_ptr<Block> b;
    {
      std::lock_guard<std::mutex> guard(mutex);
      if (!spare.empty()) b = std::move(spare.back()), spare.pop_back();
    }
    if (!b) b.reset(new Block), b->fibers.reserve(1024);
    b->body = body, b->argument = argument;
    emu_grid_dim = {grid[0], grid[1], grid[2]}, emu_block_dim = {threads[0], threads[1], threads[2]};
    for (unsigned n; (n = next++) < blocks;) {
      const unsigned i = backwards ? blocks - 1 - n : n;
      emu_block = {i % grid[0], i / grid[0] % grid[1], i / grid[0] / grid[1]};
      run_block(*b, threads[0] * threads[1] * threads[2], shared, random);
    }
    std::lock_guard<std::mutex> guard(mutex);
    spare.push_back(std::move(b));
  };
  std::vector<std::thread> others;
  for (unsigned n = 0; n < workers; ++n) others.emplace_back(work, n);
  for (auto& t : others) t.join();
}
}
