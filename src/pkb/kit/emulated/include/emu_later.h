// A function of the host as one operation of a stream: late where the stream is, in its order.
#pragma once
#include <utility>

#include "cuda_runtime_api.h"

namespace emu {
template <class F>
inline void later(void* stream, F work) {
  emu_call([](void* f) { (*static_cast<F*>(f))(); delete static_cast<F*>(f); }, new F(std::move(work)), stream);
}
}  // namespace emu
