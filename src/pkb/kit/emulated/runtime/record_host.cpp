// What Python calls: the beginning and the end of a recording, and what the host does in the place of a GPU.
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "log.h"

using namespace emu;
extern "C" {
int emu_record_begin(int shared_fd, int log_fd, int rank, int world) {
  std::lock_guard<std::recursive_mutex> guard(log_mutex);
  if (emu_recording_now) return EBUSY;
  struct stat log = {}, all = {};
  if (fstat(log_fd, &log) || fstat(shared_fd, &all)) return errno;
  if ((uint64_t)log.st_size < 2 * LOG_HEAD || (uint64_t)all.st_size < sizeof(SharedHead)) return EINVAL;
  void* mine = mmap(nullptr, log.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, log_fd, 0);
  if (mine == MAP_FAILED) return errno;
  void* ours = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);
  if (ours == MAP_FAILED) return munmap(mine, log.st_size), errno;
  prepare_places();
  head = static_cast<LogHead*>(mine), shared_head = static_cast<SharedHead*>(ours);
  capacity = log.st_size - LOG_HEAD, written_bytes = 0, my_rank = rank, lock_depth = 0;
  *head = {LOG_MAGIC, (uint32_t)rank, (uint32_t)world, 0, 0, 0, (uint64_t)emu_shared_arena, ARENA_SLOTS * SLOT, SLOT};
  sites.clear();
  written = {}, store.bytes = 0;
  emu_recording_now = 1;
  return 0;
}
void emu_record_end() {
  std::lock_guard<std::recursive_mutex> guard(log_mutex);
  if (!emu_recording_now) return;
  tell_store();
  emu_recording_now = 0;
  weak_end();
  munmap(shared_head, 4096);
  munmap(head, capacity + LOG_HEAD);
  head = nullptr, shared_head = nullptr;
}
int emu_recording() { return emu_recording_now; }
void emu_record_memory(uint64_t begin, uint64_t bytes, uint32_t allocation, uint32_t owner) {
  if (!emu_recording_now) return;
  Guard guard;
  weak_memory(begin, bytes, allocation, owner);
  put2(R_MEMORY, 0, 0, 0, begin, bytes, (uint64_t)allocation << 32 | owner);
}
uint32_t emu_record_site(const char* file, int line, const char* text) {
  if (!emu_recording_now) return 0;
  Guard guard;
  return sites.of_text(file, line, text);
}
void emu_record_access(uint64_t address, uint64_t bytes, int is_write, uint32_t site) { record_range(address, bytes, is_write, site); }
void emu_record_strong(uint64_t address, uint64_t bytes, int way, int order, int scope, uint32_t site) {
  if (!emu_recording_now) return;
  Guard guard;
  take_lock();
  put_strong(way, {site, 0, 0, GENERIC}, order, scope, address, (unsigned)bytes, next_number());
  weak_changed();
  give_lock();
}
void emu_record_lock() { if (emu_recording_now) log_mutex.lock(), take_lock(); }
void emu_record_unlock() { if (emu_recording_now && lock_depth) give_lock(), log_mutex.unlock(); }
void emu_record_thread(uint32_t launch, uint32_t number, uint32_t thread) {
  virtual_thread = {launch || operations.empty() ? launch : operations.back(), number, thread};
}
void emu_record_host(int kind, uint64_t a, uint32_t site) {
  if (!recording()) return;
  Guard guard;
  switch (kind) {
    case HOST_CALL_BEGIN: case HOST_CALL_END: as(virtual_thread), put(kind == HOST_CALL_BEGIN ? R_CALL_BEGIN : R_CALL_END, 0, 0, site, a); break;
    case HOST_OPERATION_BEGIN: {
      const unsigned launch = new_launch();
      as({});
      put2(R_HOST_OPERATION, 0, 0, site, launch, a, (uint64_t)1 << 32 | 1);
      operations.push_back(launch), virtual_thread = {launch, 0, 0};
      break;
    }
    case HOST_OPERATION_END:
      if (operations.empty()) return;
      as({});
      put(R_END, 0, 0, site, operations.back());
      operations.pop_back(), virtual_thread = {operations.empty() ? 0 : operations.back(), 0, 0};
      break;
    case HOST_STREAM_JOIN: as({}), put(R_STREAM_JOIN, 0, 0, site, a <= 2 ? 0 : a); break;
    case HOST_SIGNAL: case HOST_WAIT:
      weak_changed();
      as(virtual_thread);
      put2(kind == HOST_SIGNAL ? R_SIGNAL : R_WAIT, mode_of(ACQ_REL, SYS, GENERIC), 0, site, a, next_number(), 0);
      break;
  }
}
int emu_record_unnamed(char* out, uint32_t size) {
  std::lock_guard<std::recursive_mutex> guard(log_mutex);
  uint32_t used = 0;
  int count = 0;
  if (size) out[0] = 0;
  for (auto& [id, code] : sites.code()) {
    Dl_info info;
    if (!dladdr(code, &info) || !info.dli_fname) continue;
    const int n = snprintf(out + used, size - used, "%u 0x%llx %s\n", id, (unsigned long long)((uint64_t)code - 1 - (uint64_t)info.dli_fbase), info.dli_fname);
    if (n < 0 || used + n >= size) { out[used] = 0; break; }
    used += n, ++count;
  }
  return count;
}
void emu_record_name_site(uint32_t site, const char* file, int line, const char* text) {
  if (!emu_recording_now) return;
  Guard guard;
  tell_site({site, WEAK, NO_SCOPE, GENERIC}, file, line, text);
}
}
