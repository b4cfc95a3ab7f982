// What the runtime says of itself: who waits for what, and which instructions were executed.
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "board.h"
#include "record.h"

namespace emu {
namespace {
double idle_since = 0;
bool reported = false;
Report report = nullptr;
std::set<std::pair<std::string, int>> used_names;

// Threads here look at memory a thousand times in the time in which a GPU's look a million times, so who gives up after so many
// looks would never do so. Where a peer is late and nothing can move before it comes, the threads of one block look as often as
// a GPU's would in that time, one after the other, and the device's clock goes on. What is recorded grows by every look: there
// they share the looks of one thread, and blocks take turns, since some may wait for good and others not.
bool hurry(const std::vector<Kernel*>& running) {
  if (late_ns < (uint64_t)LOOKS * LOOK_NS) return false;
  std::vector<std::pair<const Block*, unsigned>> waiting;
  const auto of_peers = [](uint64_t at) {
    return std::any_of(watched.begin(), watched.end(), [at](const Range& r) { return r.begin <= at && at < r.end; });
  };
  for (const bool only : {true, false}) {  // those first who wait for what a peer writes: the others wait for these
    for (const Kernel* k : running)
      for (const Block* b : k->active)
        if (const auto count = std::count_if(b->fibers.begin(), b->fibers.end(), [&](const Fiber* f) {
              return !f->done && !f->blocked() && f->look.address && (!only || of_peers((uint64_t)f->look.address));
            }))
          waiting.push_back({b, (unsigned)count});
    if (!waiting.empty()) break;
  }
  if (waiting.empty()) return false;
  const auto [chosen, threads] = waiting[emu_recording_now ? random_numbers() % waiting.size() : 0];
  hurried = chosen, looks_each = emu_recording_now ? 1 + LOOKS / threads : LOOKS;
  late_ns -= (uint64_t)LOOKS * LOOK_NS, waited_ns += (uint64_t)LOOKS * LOOK_NS;
  return true;
}
}  // namespace

const Block* hurried = nullptr;
unsigned looks_each = 0, stops = 0;
uint64_t late_ns = 0, waited_ns = 0;

// Between steps: lets other processes run, and says after a while who waits.
void rest(bool moved, const std::vector<Kernel*>& running) {
  if (moved) {
    if (reported && report && may_report) report(nullptr, 0, 0, 0, nullptr, 0, nullptr, 0);
    idle_since = 0, reported = false;
    if (random_numbers() % 64 == 0) usleep(random_numbers() % 200);
    return;
  }
  weak_idle();
  if (hurry(running)) return;
  const double now = seconds();
  if (idle_since == 0) idle_since = now;
  const double idle = now - idle_since;
  if (idle < 0.0005) sched_yield();
  else usleep(idle < 0.02 ? 50 : 500);
  if (idle < 0.25 || reported || !report || !may_report) return;
  reported = true;
  unsigned waiting = 0;
  const Fiber* first = nullptr;
  const Block* where = nullptr;
  unsigned thread = 0;
  for (const Kernel* k : running)
    for (const Block* b : k->active)
      for (unsigned t = 0; t < b->fibers.size(); ++t)
        if (!b->fibers[t]->done && ((b->fibers[t]->look.address && !b->fibers[t]->blocked()) || !first)) {
          waiting += b->fibers[t]->look.address != nullptr;
          if (!first || !first->look.address) first = b->fibers[t], where = b, thread = t;
        }
  if (!first) return;
  const unsigned linear = where->index.x + where->kernel->grid.x * (where->index.y + where->kernel->grid.y * where->index.z);
  const auto* at = static_cast<const EmuAt*>(first->look.at);
  const bool blocked = first->blocked();
  report(where->kernel->name.c_str(), linear, thread, waiting, blocked ? nullptr : first->look.address, first->look.value,
         blocked ? "barrier" : at ? at->what : nullptr, at ? at->line : 0);
}
}  // namespace emu

using namespace emu;
extern "C" {
void emu_used(const EmuAt* at, int how) {
  in_fiber = false;
  used_names.insert({at->what, how});
  in_fiber = true;
}
int emu_used_names(char* out, unsigned size) {
  std::string text;
  for (auto& [name, how] : used_names) text += std::to_string(how) + name + "\n";
  snprintf(out, size, "%s", text.c_str());
  return (int)used_names.size();
}
void emu_hold(int wanted) { begin_holds(wanted != 0); }
void emu_late(uint64_t ns, unsigned times) { late_ns = ns, stops = times; }
void emu_configure(unsigned seed, Report new_report) { random_numbers.seed(seed + 1), report = new_report; }
}
