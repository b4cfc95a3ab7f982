// The log that is being written, and who writes it: for record.cpp and record_host.cpp.
#pragma once
#include <mutex>

#include "record.h"
#include "sites.h"

namespace emu {
struct Who {
  unsigned launch = 0, block = 0, thread = 0;
  bool operator==(const Who& o) const { return launch == o.launch && block == o.block && thread == o.thread; }
};
extern std::recursive_mutex log_mutex;  // of threads of the host
extern LogHead* head;
extern SharedHead* shared_head;
extern uint64_t capacity, written_bytes;
extern unsigned my_rank, lock_depth;
extern Sites sites;
extern Who written;                     // by the last R_THREAD
extern uint64_t epoch;                  // what is between two that differ is not a repetition
extern Record* last_weak;               // may grow, as long as nothing else is written
struct Store {                          // a weak write that was announced: what it does is seen when the next event is written
  uint64_t address = 0;
  uint32_t bytes = 0, site = 0;         // no bytes: there is none
  uint8_t proxy = 0;
  bool known = true;
  unsigned char before[64];
};
extern Store store;
void tell_store();
void put_weak(RecordKind kind, unsigned mode, unsigned bytes, uint32_t site, uint64_t address);
extern thread_local Who virtual_thread; // of the host's side
extern thread_local std::vector<unsigned> operations;

Record* put(RecordKind kind, unsigned mode, unsigned bytes, uint32_t site, uint64_t address, const void* more = nullptr, unsigned units = 0);
Record* put2(RecordKind kind, unsigned mode, unsigned bytes, uint32_t site, uint64_t address, uint64_t a, uint64_t b);
void was_silenced();                    // a log is open, and somebody else has switched the recorder off
inline bool recording() {
  if (!emu_recording_now && head) was_silenced();
  return emu_recording_now;
}
void tell_site(const Site& s, const char* file, int line, const char* text);
void as(const Who& who);                // those that follow are its
Who current();
void take_lock();                       // of all ranks
void give_lock();
uint64_t next_number();
void put_strong(int way, const Site& s, unsigned order, unsigned scope, uint64_t address, unsigned bytes, uint64_t number);

struct Guard {  // fibers are not switched meanwhile, threads of the host keep away
  bool was = in_fiber;
  Guard() {
    in_fiber = false;
    log_mutex.lock();
  }
  ~Guard() {
    log_mutex.unlock();
    in_fiber = was;
  }
};
}  // namespace emu
