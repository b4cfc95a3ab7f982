// What the runtime says of itself: who waits for what, and which instructions were executed.
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include <set>

#include "runtime.h"
#include "weak.h"

namespace emu {
namespace {
double idle_since = 0;
bool reported = false;
Report report = nullptr;
std::set<std::pair<std::string, int>> used_names;
}  // namespace

// Between steps: lets other processes run, and says after a while who waits.
void rest(bool moved, const std::vector<Kernel*>& running) {
  if (moved) {
    if (reported && report && may_report) report(nullptr, 0, 0, 0, nullptr, 0, nullptr, 0);
    idle_since = 0, reported = false;
    if (random_numbers() % 64 == 0) usleep(random_numbers() % 200);
    return;
  }
  weak_idle();
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
void emu_configure(unsigned seed, Report new_report) { random_numbers.seed(seed + 1), report = new_report; }
}
