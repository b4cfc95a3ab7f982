// A function of the host as one operation of a stream: late where the stream is, in its order.
#pragma once
#include <type_traits>
#include <utility>

#include "cuda_runtime_api.h"

namespace emu {
template <class F>
inline void later(void* stream, F work) {
  emu_call([](void* f) { (*static_cast<F*>(f))(); delete static_cast<F*>(f); }, new F(std::move(work)), stream);
}
// What such a function reads or writes, for the recorder of races: it sees accesses of kernels only.
template <class P>
inline void touched(const P& p, int64_t n, bool write) {
  if constexpr (std::is_pointer_v<P>)
    if (emu_recording_now && n > 0) emu_record_access((uint64_t)p, n * sizeof *p, write, 0);
}
}  // namespace emu
