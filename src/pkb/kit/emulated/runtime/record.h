// What the parts of the runtime tell the recorder. These do nothing while nothing is recorded.
#pragma once
#include "events.h"
#include "runtime.h"
#include "weak.h"

extern "C" volatile int emu_recording_now;

namespace emu {
unsigned new_launch();  // numbers of operations of streams: from 1
void record_enqueue(unsigned launch, const char* name, uint64_t stream, bool blocking, unsigned blocks, unsigned threads, unsigned mode);
void record_plain(RecordKind kind, uint64_t address);  // by the current thread
void record_token(RecordKind kind, uint64_t token, uint64_t stream);
void record_block(RecordKind kind, const Block& b, uint64_t address, uint32_t cluster);
void record_gone(const Block& b, uint64_t address, uint64_t bytes);  // shared memory of a block that has ended
void record_barrier(const Block& b, unsigned number, const uint32_t* who, const void* code);  // `who` null: all of the block
void record_arrival(unsigned number, const void* code);
void record_warp(const Block& b, unsigned warp, unsigned mask);
void record_copy(const void* to, const void* from, unsigned bytes, unsigned zeros, const void* code, const EmuAt* at);
void record_range(uint64_t address, uint64_t bytes, bool write, uint32_t site, unsigned effect = CHANGED);
void record_weak(uint64_t address, unsigned bytes, bool write, unsigned proxy, const void* code, const EmuAt* at);
void record_volatile(uint64_t address, unsigned bytes, bool write, const void* code);
void forget_store();  // the current thread stops between an access and what was said of it
void settle();  // a volatile read of the current thread has happened by now
bool others_see(uint64_t address);  // not a stack, not an argument, not the runtime's own

struct AsOperation {  // what is recorded meanwhile is done by this operation of a stream
  explicit AsOperation(unsigned launch);
  ~AsOperation();
};
}  // namespace emu
