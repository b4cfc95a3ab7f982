// A fault of a kernel ends its process, as it ends a context on a GPU. Before that one line tells what happened, to which thread, and
// at which line of the candidate: the judge puts it into the verdict (judge/emulated_fault.py).
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "runtime.h"

extern char** environ;
extern "C" emu::Dim emu_thread, emu_block;

namespace emu {
namespace {
constexpr double LOOKUP_LIMIT_S = 10;

// What a program prints, cut to `size`; empty if it cannot be started or takes too long.
void output_of(char* const* command, char* out, size_t size) {
  size_t used = 0;
  out[0] = 0;
  int ends[2];
  if (pipe(ends)) return;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", 1 /* O_WRONLY */, 0);
  pid_t child;
  const bool started = !posix_spawnp(&child, command[0], &actions, nullptr, command, environ);
  close(ends[1]);
  if (!started) return;
  const double until = seconds() + LOOKUP_LIMIT_S;
  for (double left; (left = until - seconds()) > 0 && used + 1 < size;) {
    pollfd waiting{ends[0], POLLIN, 0};
    if (poll(&waiting, 1, (int)(1000 * left) + 1) <= 0) continue;  // also where a timer's signal came between
    const ssize_t n = read(ends[0], out + used, size - used - 1);
    if (n <= 0) break;
    used += (size_t)n;
  }
  out[used] = 0;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// ", at kernel.cu:12": the innermost line of a candidate's own text (headers of ours are no .cu) that the code comes from.
void place_of(const void* code, char* out, size_t size) {
  out[0] = 0;
  Dl_info info;
  if (!code || !dladdr(code, &info) || !info.dli_fname) return;
  char offset[32], lines[4000];
  snprintf(offset, sizeof offset, "0x%llx", (unsigned long long)((const char*)code - (const char*)info.dli_fbase));
  const char* command[] = {"addr2line", "-s", "-i", "-e", info.dli_fname, offset, nullptr};
  output_of(const_cast<char* const*>(command), lines, sizeof lines);
  char* rest = nullptr;
  for (char* line = strtok_r(lines, "\n", &rest); line; line = strtok_r(nullptr, "\n", &rest)) {
    char* number = strstr(line, ".cu:");
    if (!number || number[4] < '1' || number[4] > '9') continue;
    number[4 + strspn(number + 4, "0123456789")] = 0;  // a discriminator may follow
    snprintf(out, size, ", at %s", line);
    return;
  }
}
}  // namespace

void fail(const char* what, const void* address, const void* code) {
  in_fiber = false;
  char text[1000], at[40] = "", place[200];
  if (address) snprintf(at, sizeof at, " (address %p)", address);
  place_of(code, place, sizeof place);
  const char* rank = getenv("RANK");
  const int n = snprintf(text, sizeof text, "CUDA emulator, rank %s: %s%s, kernel %s, block (%u, %u, %u), thread (%u, %u, %u)%s\n",
                         rank ? rank : "?", what, at, block && block->kernel ? block->kernel->name.c_str() : "?", emu_block.x,
                         emu_block.y, emu_block.z, emu_thread.x, emu_thread.y, emu_thread.z, place);
  if (write(2, text, std::min<size_t>(n, sizeof text - 1)) < 0) _exit(134);
  signal(SIGABRT, SIG_DFL);
  abort();
}
}  // namespace emu
