// Lazy release consistency in software. A page of symmetric memory that a kernel reads or writes weakly is from then on a copy
// (`mine`), which lies at its addresses while kernels run; all other pages are the memory itself. A second copy (`agreed`) has what
// copy and memory last agreed upon: a byte in which the two differ has been written here and not been made visible. So a write need
// not be announced, and nothing that a kernel, a copy or a thread of the host writes meanwhile is lost. Pages that were copied
// once are copies from the beginning the next time, when they may be older than what a kernel has to see.
#include "weak.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>

#include "log.h"

namespace emu {
bool weak_running = false;

namespace {
const size_t PAGE = (size_t)sysconf(_SC_PAGESIZE);
constexpr size_t MOST_PAGES = 8192;       // that are copies: the others stay as they are
constexpr uint32_t NOT_SYMMETRIC = 1u << 31;
struct Memory {
  uint32_t allocation, owner;
  size_t bytes;
  char *real, *mine, *agreed;
  std::vector<bool> copied;               // by page
  std::vector<size_t> pages;              // those, by their offsets
};
struct Place {  // where kernels see it: an allocation may be mapped more than once
  uint64_t begin, end;
  Memory* memory;
};
std::vector<std::unique_ptr<Memory>> memories;
std::vector<Place> places;                // by address
bool enabled = false;
size_t pages_copied = 0;
uint64_t seen = 0;                        // the version of the memory that `mine` has
std::minstd_rand chance(1);
unsigned drain_one_in = 0, refresh_one_in = 0;
struct Written { uint64_t address = 0; unsigned bytes = 0; } written_lately[64];
unsigned writes = 0;

char* another_mapping(char* of, size_t bytes, char* at) {
  void* made = mremap(of, 0, bytes, MREMAP_MAYMOVE | (at ? MREMAP_FIXED : 0), at);  // a size of 0 leaves the old one in place
  if (made == MAP_FAILED) fail("symmetric memory cannot be mapped again for weak execution", of);
  return static_cast<char*>(made);
}
char* new_memory(size_t bytes) {
  void* made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) fail("no memory for weak execution", nullptr);
  return static_cast<char*>(made);
}
void drop(Memory* m) {
  for (char* part : {m->real, m->mine, m->agreed}) munmap(part, m->bytes);
}
Place* place_of(uint64_t address) {
  auto found = std::upper_bound(places.begin(), places.end(), address, [](uint64_t a, const Place& p) { return a < p.end; });
  return found != places.end() && found->begin <= address ? &*found : nullptr;
}
// One access of the machine where the size is that of a word: others may look.
void copy(char* to, const char* from, size_t bytes) {
  const bool aligned = (((uintptr_t)to | (uintptr_t)from) & (bytes - 1)) == 0;
  if (bytes == 8 && aligned) __atomic_store_n((uint64_t*)to, __atomic_load_n((const uint64_t*)from, __ATOMIC_RELAXED), __ATOMIC_SEQ_CST);
  else if (bytes == 4 && aligned) __atomic_store_n((uint32_t*)to, __atomic_load_n((const uint32_t*)from, __ATOMIC_RELAXED), __ATOMIC_SEQ_CST);
  else if (bytes == 2 && aligned) __atomic_store_n((uint16_t*)to, __atomic_load_n((const uint16_t*)from, __ATOMIC_RELAXED), __ATOMIC_SEQ_CST);
  else for (size_t i = 0; i < bytes; ++i) __atomic_store_n(to + i, __atomic_load_n(from + i, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}
// Written here: to the memory, and no byte beside it, which may be another rank's.
void drain_word(Memory& m, size_t at, size_t bytes) {
  unsigned differ = 0;
  for (size_t i = 0; i < bytes; ++i) differ += m.mine[at + i] != m.agreed[at + i];
  if (!differ) return;
  if (differ < bytes && bytes > 1) return drain_word(m, at, bytes / 2), drain_word(m, at + bytes / 2, bytes / 2);
  copy(m.agreed + at, m.mine + at, bytes), copy(m.real + at, m.agreed + at, bytes);
}
// Written by others: to the copy, except for what is written here.
void refresh_word(Memory& m, size_t at, size_t bytes) {
  uint64_t real = 0, agreed = 0, mine = 0;
  memcpy(&agreed, m.agreed + at, bytes), memcpy(&mine, m.mine + at, bytes);
  copy(reinterpret_cast<char*>(&real), m.real + at, bytes);
  if (real == agreed) return;
  if (mine != agreed && bytes > 1) return refresh_word(m, at, bytes / 2), refresh_word(m, at + bytes / 2, bytes / 2);
  if (mine != agreed) return;
  memcpy(m.agreed + at, &real, bytes), copy(m.mine + at, m.agreed + at, bytes);
}
template <class Word>
void each_word(Memory& m, size_t page, Word word) {
  for (size_t at = page; at < page + PAGE; at += 8) word(m, at, 8);
}
// These bytes, where they are copies.
template <class Word>
void each_part(Memory& m, size_t at, size_t end, Word word) {
  while (at < end) {
    size_t bytes = 8;
    while (at % bytes || at + bytes > end) bytes /= 2;
    if (m.copied[at / PAGE]) word(m, at, bytes);
    at += bytes;
  }
}
bool drain(Memory& m) {
  bool any = false;
  for (const size_t at : m.pages) {
    if (!memcmp(m.mine + at, m.agreed + at, PAGE)) continue;
    each_word(m, at, drain_word);
    any = true;
  }
  return any;
}
void refresh(Memory& m) {
  for (const size_t at : m.pages)
    if (memcmp(m.real + at, m.agreed + at, PAGE)) each_word(m, at, refresh_word);
}
void put_in_place(Memory& m, size_t at) {
  memcpy(m.mine + at, m.real + at, PAGE), memcpy(m.agreed + at, m.mine + at, PAGE);
  for (const Place& p : places)
    if (p.memory == &m) another_mapping(m.mine + at, PAGE, reinterpret_cast<char*>(p.begin + at));
}
void copy_page(Memory& m, size_t at) {
  if (m.copied[at / PAGE] || pages_copied == MOST_PAGES) return;
  m.copied[at / PAGE] = true, m.pages.push_back(at), ++pages_copied;
  put_in_place(m, at);
}
template <class Do>
void within(uint64_t address, unsigned bytes, Do what) {
  if (!weak_running) return;
  if (const Place* p = place_of(address)) what(*p->memory, address - p->begin, std::min<size_t>(address - p->begin + bytes, p->memory->bytes));
}
bool is_hidden() {  // something that was written here
  for (auto& m : memories)
    for (const size_t at : m->pages)
      if (memcmp(m->mine + at, m->agreed + at, PAGE)) return true;
  return false;
}
void show_all() {
  bool any = false;
  for (auto& m : memories) any |= drain(*m);
  if (any) weak_changed();
}
unsigned one_of(std::initializer_list<unsigned> choices) { return *(choices.begin() + chance() % choices.size()); }
}  // namespace

int weak_begin(unsigned seed) {
  char* some = new_memory(PAGE);
  void* again = mremap(some, 0, PAGE, MREMAP_MAYMOVE);
  const int why_not = again == MAP_FAILED ? errno : 0;  // not Linux, or a filter of system calls
  if (!why_not) munmap(again, PAGE);
  munmap(some, PAGE);
  enabled = !why_not, chance.seed(seed + 1);
  return why_not;
}
void weak_end() {
  weak_leave();
  for (auto& m : memories) drop(m.get());
  memories.clear(), places.clear();
  enabled = false, pages_copied = 0;
}
void weak_memory(uint64_t begin, uint64_t bytes, uint32_t allocation, uint32_t owner) {
  if (!enabled) return;
  const WeakPause pause;
  std::erase_if(places, [&](const Place& p) { return p.begin < begin + bytes && begin < p.end; });
  std::erase_if(memories, [](const std::unique_ptr<Memory>& m) {
    const bool used = std::any_of(places.begin(), places.end(), [&](const Place& p) { return p.memory == m.get(); });
    if (!used) drop(m.get()), pages_copied -= m->pages.size();
    return !used;
  });
  if (allocation >= NOT_SYMMETRIC) return;
  bytes = (bytes + PAGE - 1) / PAGE * PAGE;
  auto same = std::find_if(memories.begin(), memories.end(), [&](auto& m) { return m->allocation == allocation && m->owner == owner && m->bytes == bytes; });
  if (same == memories.end()) {
    char* real = another_mapping(reinterpret_cast<char*>(begin), bytes, nullptr);
    memories.push_back(std::make_unique<Memory>(Memory{allocation, owner, bytes, real, new_memory(bytes), new_memory(bytes), std::vector<bool>(bytes / PAGE), {}}));
    same = memories.end() - 1;
  }
  places.push_back({begin, begin + bytes, same->get()});
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.begin < b.begin; });
}
void weak_enter() {
  if (!enabled || weak_running || !may_report || !shared_head) return;
  weak_changed();  // what the host has written
  seen = __atomic_load_n(&shared_head->version, __ATOMIC_SEQ_CST);
  for (auto& m : memories)
    for (const size_t at : m->pages) put_in_place(*m, at);
  weak_running = true;
  drain_one_in = one_of({1u << 30, 64, 8}), refresh_one_in = one_of({4096, 64, 8});
}
void weak_leave() {
  if (!weak_running) return;
  weak_running = false;
  for (const Place& p : places)
    if (!p.memory->pages.empty()) another_mapping(p.memory->real, p.memory->bytes, reinterpret_cast<char*>(p.begin));
  show_all();  // after the last that any thread can have written
}
void weak_changed() {
  if (!enabled || !shared_head) return;
  const uint64_t before = __atomic_fetch_add(&shared_head->version, 1, __ATOMIC_SEQ_CST);
  if (seen == before) seen = before + 1;
}
bool weak_covers(uint64_t address) { return weak_running && place_of(address); }
void weak_release() {
  if (!weak_running) return;
  if (chance() % 4 == 0 && is_hidden()) usleep(chance() % 1000);  // others act upon what they see already
  show_all();
}
void weak_acquire() {
  if (!weak_running) return;
  const uint64_t now = __atomic_load_n(&shared_head->version, __ATOMIC_SEQ_CST);
  if (now == seen) return;
  seen = now;
  for (auto& m : memories) refresh(*m);
}
void weak_look(uint64_t address, unsigned bytes) {
  within(address, bytes, [](Memory& m, size_t at, size_t end) { each_part(m, at, end, refresh_word); });
}
void weak_before(uint64_t address, unsigned bytes) {
  within(address, bytes, [](Memory& m, size_t at, size_t end) { each_part(m, at, end, drain_word), each_part(m, at, end, refresh_word); });
}
void weak_after(uint64_t address, unsigned bytes) {
  within(address, bytes, [](Memory& m, size_t at, size_t end) {
    each_part(m, at, end, [](Memory& m, size_t at, size_t n) { copy(m.agreed + at, m.mine + at, n), copy(m.real + at, m.agreed + at, n); });
  });
  weak_changed();
}
void weak_touched(uint64_t address, unsigned bytes, bool write) {
  if (!weak_running) return;
  within(address, bytes, [](Memory& m, size_t at, size_t end) {
    for (at = at / PAGE * PAGE; at < end; at += PAGE) copy_page(m, at);
  });
  if (!place_of(address)) return;
  if (write) {
    written_lately[writes++ % 64] = {address, bytes};
    if (chance() % drain_one_in) return;
    const Written& one = written_lately[chance() % std::min(writes, 64u)];
    within(one.address, one.bytes, [](Memory& m, size_t at, size_t end) {
      if (!memcmp(m.mine + at, m.agreed + at, end - at)) return;
      each_part(m, at, end, drain_word);
      weak_changed();
    });
  } else if (chance() % refresh_one_in == 0) {
    weak_look(address, bytes);
  }
}
void weak_idle() {
  if (!weak_running || memories.empty() || chance() % 4) return;
  Memory& m = *memories[chance() % memories.size()];
  if (m.pages.empty()) return;
  const size_t page = m.pages[chance() % m.pages.size()], first = chance() % (PAGE / 16);
  for (size_t n = 0; n < PAGE / 16; ++n) {
    const size_t at = page + (first + n) % (PAGE / 16) * 16;
    if (!memcmp(m.mine + at, m.agreed + at, 16)) continue;
    drain_word(m, at, 8), drain_word(m, at + 8, 8);
    return weak_changed();
  }
}
}  // namespace emu

extern "C" {
int emu_weak_begin(unsigned seed) { return emu::weak_begin(seed); }  // 0: kernels run so from now on
}
