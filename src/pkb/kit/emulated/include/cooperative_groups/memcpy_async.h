// Copies of a group: each is a group of cp.async of its threads, and a wait is a barrier of them.
#pragma once
#include "../cooperative_groups.h"
#include "../cuda/barrier"
#include "../emu_async.h"

namespace cooperative_groups {
template <class G>
inline void emu_copy(const G& group, void* to, const void* from, size_t bytes, const char* file, int line) {
  emu::copy_share(to, from, bytes, group.thread_rank(), group.size(), {"cooperative_groups::memcpy_async", file, line});
  emu_copies_close();
}
template <class G, class T>
inline void memcpy_async(const G& group, T* to, const void* from, size_t bytes, EMU_HERE) { emu_copy(group, to, from, bytes, emu_file, emu_line); }
template <class G, class T, size_t A>
inline void memcpy_async(const G& group, T* to, const void* from, const cuda::aligned_size_t<A>& bytes, EMU_HERE) {
  bytes.check(to, from), emu_copy(group, to, from, bytes, emu_file, emu_line);
}
template <class G, class T, class N, class M>  // as many elements as both have
inline void memcpy_async(const G& group, T* to, const N& to_count, const T* from, const M& from_count, EMU_HERE) {
  emu_copy(group, to, from, sizeof(T) * ((size_t)to_count < (size_t)from_count ? (size_t)to_count : (size_t)from_count), emu_file, emu_line);
}
template <unsigned N, class G> inline void wait_prior(const G& group) { emu_copies_done(N), group.sync(); }
template <class G> inline void wait(const G& group) { emu_copies_done(0), group.sync(); }
}  // namespace cooperative_groups
