// Weak execution: while kernels run, they work on a copy of symmetric memory that is the rank's own, and what is written there reaches other ranks
// late, in any order, and at the latest by a release of scope sys or the end of a kernel. What others have written is seen late
// too, at the latest after an acquire. A strong access is one of the memory itself. docs/races.md says what this models.
#pragma once
#include <stdint.h>

namespace emu {
extern bool weak_running;  // copies are in place
bool weak_covers(uint64_t address);  // they are, and this is in one
int weak_begin(unsigned seed);  // 0, or why not
void weak_end();
void weak_memory(uint64_t begin, uint64_t bytes, uint32_t allocation, uint32_t owner);  // symmetric, or somebody's new memory
void weak_enter();         // kernels run from here, by this thread
void weak_leave();         // the memory itself is in place again, and has all that this rank wrote
void weak_changed();       // others may have to look at the memory again
// These do nothing where no copies are in place, or for other memory.
void weak_release();       // others can see what this rank has written
void weak_acquire();       // this rank sees what others have made visible
void weak_look(uint64_t address, unsigned bytes);     // somebody polls: these bytes are fresh
void weak_before(uint64_t address, unsigned bytes);   // a strong access: copy and memory agree
void weak_after(uint64_t address, unsigned bytes);    // a strong write: the memory has it
void weak_touched(uint64_t address, unsigned bytes, bool write);  // a weak access follows: what may happen at any time, happens
void weak_idle();          // nobody moves: something becomes visible

struct WeakPause {         // the host does something: it sees the memory itself
  const bool was = weak_running;
  WeakPause() { if (was) weak_leave(); }
  ~WeakPause() { if (was) weak_enter(); }
};
}  // namespace emu
