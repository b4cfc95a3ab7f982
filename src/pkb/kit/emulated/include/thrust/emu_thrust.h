// What candidates take of thrust: functions of ranges in device memory, each one operation of a stream that the host waits for
// (thrust::cuda::par_nosync: does not wait).
#pragma once
#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <vector>

#include "../emu_later.h"

namespace thrust {
template <class T>
class device_ptr {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = std::remove_cv_t<T>;
  using difference_type = ptrdiff_t;
  using pointer = T*;
  using reference = T&;
  device_ptr() = default;
  explicit device_ptr(T* p) : p_(p) {}
  T* get() const { return p_; }
  T& operator*() const { return *p_; }
  T& operator[](ptrdiff_t i) const { return p_[i]; }
  device_ptr& operator++() { return ++p_, *this; }
  device_ptr& operator+=(ptrdiff_t n) { return p_ += n, *this; }
  friend device_ptr operator+(device_ptr a, ptrdiff_t n) { return device_ptr(a.p_ + n); }
  friend device_ptr operator-(device_ptr a, ptrdiff_t n) { return device_ptr(a.p_ - n); }
  friend ptrdiff_t operator-(device_ptr a, device_ptr b) { return a.p_ - b.p_; }
  friend bool operator==(device_ptr a, device_ptr b) { return a.p_ == b.p_; }
  friend bool operator!=(device_ptr a, device_ptr b) { return a.p_ != b.p_; }
  friend bool operator<(device_ptr a, device_ptr b) { return a.p_ < b.p_; }

 private:
  T* p_ = nullptr;
};
template <class T> inline device_ptr<T> device_pointer_cast(T* p) { return device_ptr<T>(p); }
template <class T> inline T* raw_pointer_cast(T* p) { return p; }
template <class T> inline T* raw_pointer_cast(device_ptr<T> p) { return p.get(); }

template <class T = void> using plus = std::plus<T>;
template <class T = void> using less = std::less<T>;
template <class T = void> using greater = std::greater<T>;
template <class T = void> using multiplies = std::multiplies<T>;
template <class T = void> struct maximum { constexpr T operator()(const T& a, const T& b) const { return a < b ? b : a; } };
template <class T = void> struct minimum { constexpr T operator()(const T& a, const T& b) const { return b < a ? b : a; } };

struct emu_policy {
  void* stream = nullptr;
  bool waits = true;
  emu_policy on(cudaStream_t s) const { return {s, waits}; }
  template <class F> void run(F work) const {
    emu::later(stream, std::move(work));
    if (waits) emu_stream_synchronize((uint64_t)stream);
  }
};
inline constexpr emu_policy device{};
namespace cuda {
inline constexpr emu_policy par{}, par_nosync{nullptr, false};
}

namespace emu_parts {
template <class I> auto plain(I i) { return i; }
template <class T> T* plain(device_ptr<T> p) { return p.get(); }
template <class I> using value_t = typename std::iterator_traits<I>::value_type;
}  // namespace emu_parts

// Each with a policy, and without one on the default stream.
#define EMU_WITHOUT_POLICY(name)                                                                                       \
  template <class I, class... A, std::enable_if_t<!std::is_same_v<std::decay_t<I>, emu_policy>, int> = 0>              \
  auto name(I first, A... a) { return name(device, first, a...); }

template <class I, class Less = std::less<>>
void sort(const emu_policy& policy, I first, I last, Less less = {}) {
  policy.run([a = emu_parts::plain(first), b = emu_parts::plain(last), less] { emu::touched(a, b - a, true), std::stable_sort(a, b, less); });
}
template <class I, class Less = std::less<>>
void stable_sort(const emu_policy& policy, I first, I last, Less less = {}) { thrust::sort(policy, first, last, less); }
template <class I, class J, class Less = std::less<>>
void sort_by_key(const emu_policy& policy, I first, I last, J values, Less less = {}) {
  policy.run([a = emu_parts::plain(first), n = last - first, v = emu_parts::plain(values), less] {
    emu::touched(a, n, true), emu::touched(v, n, true);
    std::vector<ptrdiff_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](ptrdiff_t i, ptrdiff_t j) { return less(a[i], a[j]); });
    std::vector<emu_parts::value_t<decltype(a)>> keys(a, a + n);
    std::vector<emu_parts::value_t<decltype(v)>> others(v, v + n);
    for (ptrdiff_t i = 0; i < n; ++i) a[i] = keys[order[i]], v[i] = others[order[i]];
  });
}
template <class I, class J, class Less = std::less<>>
void stable_sort_by_key(const emu_policy& policy, I first, I last, J values, Less less = {}) {
  thrust::sort_by_key(policy, first, last, values, less);
}
template <class I, class O, class Op = std::plus<>>
O inclusive_scan(const emu_policy& policy, I first, I last, O out, Op op = {}) {
  policy.run([a = emu_parts::plain(first), n = last - first, o = emu_parts::plain(out), op] {
    emu::touched(a, n, false), emu::touched(o, n, true);
    emu_parts::value_t<decltype(a)> sum{};
    for (ptrdiff_t i = 0; i < n; ++i) o[i] = sum = i ? op(sum, a[i]) : a[i];
  });
  return out + (last - first);
}
template <class I, class O, class T, class Op = std::plus<>>
O exclusive_scan(const emu_policy& policy, I first, I last, O out, T initial, Op op = {}) {
  policy.run([a = emu_parts::plain(first), n = last - first, o = emu_parts::plain(out), initial, op] {
    emu::touched(a, n, false), emu::touched(o, n, true);
    T sum = initial;
    for (ptrdiff_t i = 0; i < n; ++i) { const T next = op(sum, a[i]); o[i] = sum, sum = next; }
  });
  return out + (last - first);
}
template <class I, class O>
O exclusive_scan(const emu_policy& policy, I first, I last, O out) {
  return thrust::exclusive_scan(policy, first, last, out, emu_parts::value_t<I>{});
}
template <class I, class T, class Op = std::plus<>>
T reduce(const emu_policy& policy, I first, I last, T initial, Op op = {}) {
  T sum = initial;
  emu_policy{policy.stream, true}.run([&sum, a = emu_parts::plain(first), n = last - first, op] {
    emu::touched(a, n, false);
    for (ptrdiff_t i = 0; i < n; ++i) sum = op(sum, a[i]);
  });
  return sum;
}
template <class I>
auto reduce(const emu_policy& policy, I first, I last) { return thrust::reduce(policy, first, last, emu_parts::value_t<I>{}); }
template <class I, class T>
void fill(const emu_policy& policy, I first, I last, T value) {
  policy.run([a = emu_parts::plain(first), b = emu_parts::plain(last), value] { emu::touched(a, b - a, true), std::fill(a, b, value); });
}
template <class I, class O>
O copy(const emu_policy& policy, I first, I last, O out) {
  policy.run([a = emu_parts::plain(first), b = emu_parts::plain(last), o = emu_parts::plain(out)] {
    emu::touched(a, b - a, false), emu::touched(o, b - a, true), std::copy(a, b, o);
  });
  return out + (last - first);
}
template <class I>
void sequence(const emu_policy& policy, I first, I last) {
  policy.run([a = emu_parts::plain(first), n = last - first] {
    emu::touched(a, n, true);
    for (ptrdiff_t i = 0; i < n; ++i) a[i] = (emu_parts::value_t<decltype(a)>)i;
  });
}
template <class I, class O, class Op>
O transform(const emu_policy& policy, I first, I last, O out, Op op) {
  policy.run([a = emu_parts::plain(first), b = emu_parts::plain(last), o = emu_parts::plain(out), op] {
    emu::touched(a, b - a, false), emu::touched(o, b - a, true), std::transform(a, b, o, op);
  });
  return out + (last - first);
}
EMU_WITHOUT_POLICY(sort)
EMU_WITHOUT_POLICY(stable_sort)
EMU_WITHOUT_POLICY(sort_by_key)
EMU_WITHOUT_POLICY(stable_sort_by_key)
EMU_WITHOUT_POLICY(inclusive_scan)
EMU_WITHOUT_POLICY(exclusive_scan)
EMU_WITHOUT_POLICY(reduce)
EMU_WITHOUT_POLICY(fill)
EMU_WITHOUT_POLICY(copy)
EMU_WITHOUT_POLICY(sequence)
EMU_WITHOUT_POLICY(transform)
#undef EMU_WITHOUT_POLICY
}  // namespace thrust
