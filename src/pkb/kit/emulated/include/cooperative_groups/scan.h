// Scans of tiles and coalesced groups, by their lanes in order.
#pragma once
#include "../cooperative_groups.h"

namespace cooperative_groups {
template <bool SELF, class G, class T, class Op>
EMU_UNSEEN inline T emu_scan(const G& group, T x, Op op) {
  memcpy(&emu_warp()[emu_lane()], &x, sizeof x);
  emu_meet_warp(group.mask());
  T sum{};
  bool first = true;
  for (unsigned lane = 0; lane < emu_lane() + SELF; ++lane) {
    if (!(group.mask() >> lane & 1)) continue;
    T y;
    memcpy(&y, &emu_warp()[lane], sizeof y);
    sum = first ? y : op(sum, y), first = false;
  }
  emu_meet_warp(group.mask());
  return sum;
}
template <class G, class T, class Op = plus<T>> inline T inclusive_scan(const G& group, T x, Op op = {}) { return emu_scan<true>(group, x, op); }
template <class G, class T, class Op = plus<T>> inline T exclusive_scan(const G& group, T x, Op op = {}) { return emu_scan<false>(group, x, op); }
}  // namespace cooperative_groups
