// The log of a rank: what its threads did to memory that others can see, in the order in which it happened. docs/races.md has the
// rules. record.cpp writes it, races/*.cpp read it (and trust nothing in it).
#pragma once
#include <stdint.h>

namespace emu {
constexpr uint64_t LOG_MAGIC = 0x31474f4c424b50ull;  // "PKBLOG1"
constexpr uint64_t LOG_HEAD = 4096;                  // bytes before the first record

enum Broken : uint32_t {
  UNORDERED = 1,            // a lock could not be had in time: the order of strong accesses is not exact
  TOUCHED = 2,              // somebody else has written into it, or has switched the recorder off for a while
};
struct LogHead {            // of a log file
  uint64_t magic;
  uint32_t rank, world;
  uint64_t used;            // bytes of records behind the head
  uint32_t truncated;       // the file was full
  uint32_t broken;          // UNORDERED or TOUCHED
  uint64_t arena, arena_bytes, arena_slot;  // addresses of shared memory: blocks have slots of it
};
struct SharedHead {         // of the file that all ranks share: all zero in the beginning
  uint64_t number;          // the last that was given out
  uint32_t lock;            // 0 free, else rank + 1 of its owner
  uint32_t unused;
  uint64_t version;         // of symmetric memory in weak execution: who sees another one looks at the memory again
};

// OPERATOR: of a few words that an operator of torch reads or writes. They may be flags that Python looks at, so they release and acquire;
// but the stores are plain ones, and of two writes of two ranks that nothing orders either may be the one that is lost.
enum Strength : uint8_t { WEAK, RELAXED, ACQUIRE, RELEASE, ACQ_REL, SC, OPERATOR };
enum Scope : uint8_t { NO_SCOPE, CTA, CLUSTER, GPU, SYS };
enum Proxy : uint8_t { GENERIC, ASYNC, READONLY, ALL_PROXIES };
enum Effect : uint8_t { CHANGED, UNCHANGED, UNKNOWN_EFFECT };  // of a weak write on the bytes that were there: in the place of its scope

enum Enqueued : uint8_t { A_KERNEL = 1, BEGINS_EARLY = 2 };    // the latter: before the kernel ahead of it in its stream has ended

enum RecordKind : uint8_t {
  R_NONE,
  R_THREAD,        // those that follow are of: address = launch (0: the host), site = block, bytes = thread
  R_READ, R_WRITE,              // weak: `bytes` at `address`; more than 65535 bytes are several records
  R_STRONG_READ, R_STRONG_WRITE, R_STRONG_UPDATE,   // numbered: one unit more, {number, value}
  R_FENCE,
  R_BARRIER_BLOCK,              // all threads of the block have come
  R_BARRIER_WARP,               // of the current thread's warp: address = mask of lanes
  R_BARRIER_SOME,               // bytes = number of the barrier; 8 units more: a bit for each thread of the block that waits
  R_ARRIVE,                     // of the current thread, without waiting: bytes = number of the barrier
  R_BARRIER_GRID,               // all threads of the launch
  R_BLOCK_BEGIN,                // address = slot of shared memory, and << 32 where in it the dynamic one begins; site = number of its cluster
  R_BLOCK_END,
  R_COPY,                       // cp.async and its like: address = to, bytes; one unit more, {from, group}
  R_COPIES_CLOSE,               // a group of the current thread ends
  R_COPIES_DONE,                // all groups of the current thread are done but `address`
  R_ENQUEUE,                    // by the host: address = launch, site = name, mode = Enqueued; one unit more, {stream, blocks << 32 | threads}
  R_BEGIN, R_END,               // address = launch: it runs, it is complete
  R_STREAM_JOIN,                // the host has waited for: address = stream, ~0: all
  R_EVENT_RECORD, R_EVENT_WAIT, // in a stream, when it comes to it: address = token; one unit more, {stream, 0}
  R_EVENT_JOIN,                 // the host has waited for: address = token
  R_SIGNAL, R_WAIT,             // numbered: the current thread releases to, or acquires from: address = key
  R_CALL_BEGIN, R_CALL_END,     // address = number of the call
  R_MEMORY,                     // address, one unit more, {bytes, allocation << 32 | owner}
  R_SITE,                       // site = its id, bytes = units of text behind: "file\0line\0text"
  R_HOST_OPERATION,             // as enqueue, begin: the host does at once what is an operation of a stream
  R_WAIT_FOR_GRIDS,             // by a thread of a kernel that may have begun early: what is ahead of it is complete
  R_CLUSTER_ARRIVE,             // the current thread, at its cluster's barrier: address = 1 if it releases
  R_CLUSTER_OPEN,               // all threads of the current one's cluster have
  R_CLUSTER_WAIT,               // the current thread has waited for that
  R_KINDS,
};

struct Record {             // a unit
  uint8_t kind;
  uint8_t mode;             // order | scope << 3 | proxy << 6
  uint16_t bytes;
  uint32_t site;
  uint64_t address;
};
struct Extension { uint64_t a, b; };
static_assert(sizeof(Record) == 16 && sizeof(Extension) == 16);
constexpr uint8_t mode_of(unsigned order, unsigned scope, unsigned proxy) { return (uint8_t)(order | scope << 3 | proxy << 6); }

// What `emu_record_host` takes.
enum HostKind {
  HOST_CALL_BEGIN = 1,      // a = number of the call
  HOST_CALL_END = 2,        // a = number of the call
  HOST_OPERATION_BEGIN = 3, // a = stream (0: the default stream): an operation of torch or a launch of Triton that runs now. What
                            // emu_record_access and emu_record_thread(0, block, thread) say is its, until its end
  HOST_OPERATION_END = 4,
  HOST_STREAM_JOIN = 5,     // a = stream, or ~0 for all of the device: the host has waited for it (`.item()`, `.cpu()`)
  HOST_SIGNAL = 6,          // a = key that ranks agree on: what the current thread did and knows is released to whoever waits for
                            // the key. Of an operation inside its begin and end, else of the host
  HOST_WAIT = 7,            // a = key: called after the wait. Keys must not be used twice: put a count into them
};
}  // namespace emu

extern "C" {
int emu_record_begin(int shared_fd, int log_fd, int rank, int world);  // 0: it records
void emu_record_end();
int emu_recording();
void emu_record_memory(uint64_t begin, uint64_t bytes, uint32_t allocation, uint32_t owner);
uint32_t emu_record_site(const char* file, int line, const char* text);
void emu_record_host(int kind, uint64_t a, uint32_t site);
void emu_record_access(uint64_t address, uint64_t bytes, int is_write, uint32_t site);
// A strong access by the host's side: order and scope as in the enums above; `way` 0 read, 1 write, 2 both. Call it under
// emu_record_lock for an exact order.
void emu_record_strong(uint64_t address, uint64_t bytes, int way, int order, int scope, uint32_t site);
void emu_record_lock();
void emu_record_unlock();
void emu_record_thread(uint32_t launch, uint32_t block, uint32_t thread);
// Code addresses that have no line yet: "site path offset\n" each, as many as fit; then emu_record_name_site for each.
int emu_record_unnamed(char* out, uint32_t size);
void emu_record_name_site(uint32_t site, const char* file, int line, const char* text);
}
