// cp.async by its C functions.
#pragma once
#include "emu.h"

inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0, EMU_HERE) {
  if ((bytes != 4 && bytes != 8 && bytes != 16) || zeros > bytes) emu_fault("__pipeline_memcpy_async of a size that is not 4, 8 or 16", to);
  emu::ptx::aligned(to, bytes), emu::ptx::aligned(from, bytes);
  const EmuAt at{"__pipeline_memcpy_async", emu_file, emu_line};
  emu_copy_later(to, from, (unsigned)(bytes - zeros), (unsigned)zeros, &at);
}
inline void __pipeline_commit() { emu_copies_close(); }
inline void __pipeline_wait_prior(size_t but) { emu_copies_done((unsigned)but); }
